"""What a PSP can do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Capabilities:
    """What a PSP can do, as its plugin states it, and whose its pages are.

    `max_consent_length` is the most characters of consent that its page shows. `forgets_guests` is
    whether it can delete a guest. `public_name` is the name by which guests know it, and `page_host`
    the host of its pages, or None for this service's own.
    """

    max_consent_length: int
    forgets_guests: bool = False
    public_name: str | None = None
    page_host: str | None = None
