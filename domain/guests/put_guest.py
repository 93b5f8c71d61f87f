"""Create or update a guest under the client's own id."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from domain.errors import GuestNotFound, PreconditionFailed
from domain.guests.guest import ANY_VERSION, UNCHANGED, Guest, parse_guest_id
from domain.permissions import (
    MAY_ADD_GUESTS,
    MAY_EDIT_GUESTS,
    MAY_PUT_GUESTS,
    MAY_VIEW_GUESTS,
    Caller,
)
from domain.storage import AlreadyStored, Storage, WriteUnit


def put_unless_erased(unit: WriteUnit, guests: Sequence[Guest]) -> int:
    """Store or update guests, except erased guests; return the number of erased ones."""
    erased = unit.erasures.among([guest.id for guest in guests])
    unit.guests.put_many(guest for guest in guests if guest.id not in erased)
    return sum(guest.id in erased for guest in guests)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutGuest:
    """Use case: create the guest with this id, or update it.

    Creating needs `guests:add`, changing needs `guests:edit`. Repeating a request changes nothing
    and needs either permission. A guest belongs to no center, so a caller that is limited to
    centers may do neither. Raises UserNotAuthorized, GuestIdNotUsable or InvalidField, and
    GuestNotFound for the id of an erased guest.

    With `versions`, raises PreconditionFailed, and stores nothing, unless the guest is in one of
    these versions. A caller that may not read guests cannot know a version, so `versions` then
    raises UserNotAuthorized.
    """

    needs = MAY_PUT_GUESTS

    storage: Storage

    def __call__(
        self,
        caller: Caller,
        *,
        guest_id: str,
        first_name: object,
        last_name: object,
        email: object,
        language: object = UNCHANGED,
        versions: Collection[str] | None = None,
    ) -> Guest:
        """Store the guest and return it."""
        caller.require(self.needs)
        if versions is not None:
            caller.require(MAY_VIEW_GUESTS)
        known = Guest.parse(
            id=parse_guest_id(guest_id),
            first_name=first_name,
            last_name=last_name,
            email=email,
            language=None if language is UNCHANGED else language,
        )

        def put(unit: WriteUnit) -> Guest:
            if unit.erasures.get(known.id) is not None:
                raise GuestNotFound
            stored, guest = unit.guests.lock(known.id), known
            if stored is not None and language is UNCHANGED:
                guest = replace(known, language=stored.language)
            if stored == guest:
                return guest
            caller.require(MAY_ADD_GUESTS if stored is None else MAY_EDIT_GUESTS)
            if versions is not None and not _has_version(stored, versions):
                raise PreconditionFailed
            if stored is None:
                unit.guests.add(guest)
            else:
                unit.guests.update(guest)
            unit.commit()
            return guest

        # Another request may create the same guest at the same time. Then the guest exists at the
        # next try.
        with suppress(AlreadyStored):
            return self.storage.transact(put)
        return self.storage.transact(put)


def _has_version(stored: Guest | None, versions: Collection[str]) -> bool:
    return stored is not None and (ANY_VERSION in versions or stored.version in versions)
