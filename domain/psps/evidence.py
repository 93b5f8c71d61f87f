"""Reports of a PSP about a page, apart from its responses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

MAX_EVIDENCE: Final = 50
"""The most pieces of evidence that a session may have of each origin.

Forged returns therefore cannot displace webhooks.
"""


class EvidenceOrigin(StrEnum):
    """Where evidence came from."""

    RETURN = "return"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A report of a PSP, by return address or verified webhook.

    `content` is text in the PSP's own format, which only its adapter reads.
    """

    origin: EvidenceOrigin
    content: str
    received_at: datetime
