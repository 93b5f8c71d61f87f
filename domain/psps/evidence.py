"""Evidence: reports about a page that arrive by webhook or with the guest's return."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

MAX_EVIDENCE: Final = 50
"""The maximum number of pieces of evidence of each origin that a session can have.

The origins are counted separately, so that forged returns cannot displace webhooks.
"""


class EvidenceOrigin(StrEnum):
    """The way in which evidence arrived."""

    RETURN = "return"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """A report from a PSP that arrived with the guest's return or in a verified webhook.

    `content` is a text in the PSP's own format, which only the PSP's adapter reads.
    """

    origin: EvidenceOrigin
    content: str
    received_at: datetime
