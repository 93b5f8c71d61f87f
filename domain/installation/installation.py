"""What the records know of the installation that they belong to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The installation that the records belong to.

    `origin` is the public one at which guests reach it; None until it is known, and on one machine
    only. `is_copy` means that another installation works on the records that these were copied from.
    """

    origin: str | None = None
    is_copy: bool = False


class Installations(Protocol):
    """The one installation of the records."""

    def get(self) -> Installation:
        """Return it; a write unit locks it."""
        ...

    def put(self, installation: Installation) -> None:
        """Store it; it replaces what was stored."""
        ...

    def let_go_of_original(self, now: datetime) -> Mapping[str, int]:
        """Delete and end whatever would act for the installation that the records were copied from.

        Event endpoints with their secrets, deliveries that are due, discards and readings of cards
        that are due are deleted, access tokens revoked. All merchant identities become those of the
        original. Returns how many there were of each.
        """
        ...
