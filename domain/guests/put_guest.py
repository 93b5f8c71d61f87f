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
    """Store or update guests, except those who were erased. Return how many were left out."""
    erased = unit.erasures.among([guest.id for guest in guests])
    unit.guests.put_many(guest for guest in guests if guest.id not in erased)
    return sum(guest.id in erased for guest in guests)


@dataclass(frozen=True, slots=True, kw_only=True)
class PutGuest:
    """Use case: create the guest with this id, or update the guest who has the id.

    To create a guest, the caller needs the permission `guests:add`. To change a guest, the caller
    needs `guests:edit`. A repeated request changes nothing, and requires either of these
    permissions. Guests do not belong to centers, so a caller that is limited to centers may neither
    create nor change a guest.

    With `versions`, the guest is stored only if the stored guest has one of these versions. The
    caller must then also be allowed to read guests.

    Raises UserNotAuthorized, GuestIdNotUsable or InvalidField. Raises GuestNotFound if the guest
    was erased, and PreconditionFailed if the stored guest has another version or does not exist.
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
        """Store the guest, and return the guest as stored.

        If `language` is UNCHANGED, the stored language is kept.
        """
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

        # Another request may create the same guest at the same time. The second attempt then finds
        # the guest.
        with suppress(AlreadyStored):
            return self.storage.transact(put)
        return self.storage.transact(put)


def _has_version(stored: Guest | None, versions: Collection[str]) -> bool:
    return stored is not None and (ANY_VERSION in versions or stored.version in versions)
