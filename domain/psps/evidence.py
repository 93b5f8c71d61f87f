"""What a PSP has reported of a page besides its responses."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final

MAX_EVIDENCE: Final = 50
"""How many pieces of evidence a session may have of each origin.

Forged returns therefore cannot displace webhooks.
"""


class EvidenceOrigin(StrEnum):
    """Where evidence came from."""

    RETURN = "return"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a PSP reported by return address or verified webhook.

    Only the PSP's adapter reads `content`, which is text in its own format.
    """

    origin: EvidenceOrigin
    content: str
    received_at: datetime
