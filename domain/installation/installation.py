"""The installation to which the records belong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    """The installation to which the records belong.

    `origin` is the public origin (scheme, host and port) at which guests reach the installation. It
    is None on loopback, and until the origin is known. `is_copy` means that the records were copied
    from another installation that is still working.
    """

    origin: str | None = None
    is_copy: bool = False


class Installations(Protocol):
    """Repository of the installation, of which there is only one."""

    def get(self) -> Installation:
        """Return the installation. In a write unit, this call locks it."""
        ...

    def put(self, installation: Installation) -> None:
        """Replace the stored installation."""
        ...

    def detach_from_original(self, now: datetime) -> Mapping[str, int]:
        """Delete or end everything that would act in place of the original installation.

        - Event endpoints with their secrets, the list of events, pending deliveries, discards, and
          the sessions of guests on their own pages are deleted.
        - Scheduled readings of cards are cancelled.
        - Access tokens are revoked.
        - All merchant identities are marked as those of the original installation.

        Return how many records of each kind were changed.
        """
        ...
