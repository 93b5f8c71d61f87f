"""What a PSP can do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a PSP can do, as its plugin states it.

    `max_consent_length` is the most characters of consent that its page shows. `forgets_guests` is
    whether it can delete a guest.
    """

    max_consent_length: int
    forgets_guests: bool = False
