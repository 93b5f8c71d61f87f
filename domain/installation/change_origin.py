"""Change the stored origin, because the installation has a new address or the records are a copy.

The origin is the scheme, host and port at which guests reach the installation.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from domain.audit.entry import Action, Details
from domain.audit.note_act import NoteAct
from domain.installation.installation import Installation
from domain.outside import Clock
from domain.storage import Storage, WriteUnit

ABOUT: Final = "installation"
NONE: Final = "none"
"""The text in the audit trail if there was no public origin."""


class NotPublic(Exception):
    """This process has a loopback origin, so there is no public origin to store."""

    def __init__(self) -> None:
        super().__init__("set CARDONFILE_PUBLIC_BASE_URL to the new address of the installation")


class NoCopy(Exception):
    """The records already belong to this process's origin."""

    def __init__(self, origin: str) -> None:
        super().__init__(
            f"this database belongs to {origin}, and CARDONFILE_PUBLIC_BASE_URL is the same address: "
            "set CARDONFILE_PUBLIC_BASE_URL to the address of the copy, or unset it"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveInstallation:
    """Use case: store this process's origin as the origin of the installation.

    Nothing else changes. `origin` is None on loopback. May be called more than once. Raises
    NotPublic or ServiceUnavailable.
    """

    storage: Storage
    origin: str | None
    note_act: NoteAct

    def __call__(self) -> str:
        """Store `origin` as the origin of the installation, and return it."""
        origin = self.origin
        if origin is None:
            raise NotPublic

        def move(unit: WriteUnit) -> None:
            before = unit.installations.get()
            unit.installations.put(replace(before, origin=origin))
            details = {"from": before.origin or NONE, "to": origin}
            self.note_act(unit, Action.INSTALLATION_MOVED, ABOUT, details)
            unit.commit()

        self.storage.transact(move)
        return origin


@dataclass(frozen=True, slots=True, kw_only=True)
class SeparateCopy:
    """Use case: separate a copy of the records from the original installation.

    The copy must not act in place of the original. All its pending work at endpoints and PSPs is
    deleted, its access tokens are revoked, and the keys of the original's merchants are refused
    from now on (`RecognizeMerchant`). `origin` is None on loopback. Raises NoCopy if the records
    already belong to the public `origin`, for example after an earlier call. Raises
    ServiceUnavailable.
    """

    storage: Storage
    origin: str | None
    note_act: NoteAct
    clock: Clock

    def __call__(self) -> Mapping[str, int]:
        """Separate the copy. Return how many records of each kind were deleted or revoked."""
        now = self.clock.now()

        def separate(unit: WriteUnit) -> Mapping[str, int]:
            before = unit.installations.get()
            if before.origin is not None and before.origin == self.origin:
                raise NoCopy(before.origin)
            unit.installations.put(Installation(origin=self.origin, is_copy=True))
            gone = unit.installations.detach_from_original(now)
            details: Details = {
                "from": before.origin or NONE,
                "to": self.origin or NONE,
                **gone,
            }
            self.note_act(unit, Action.INSTALLATION_COPIED, ABOUT, details)
            unit.commit()
            return gone

        return self.storage.transact(separate)
