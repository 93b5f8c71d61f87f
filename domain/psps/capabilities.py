"""What a PSP can do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a PSP can do, as its plugin states it.

    `max_consent_length` is the most characters of consent that its page shows.
    """

    max_consent_length: int
