"""Read a guest."""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import GuestNotFound
from domain.guests.guest import Guest, parse_guest_id
from domain.permissions import MAY_VIEW_GUESTS, Caller
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGuest:
    """Use case: return a guest.

    A guest belongs to no center, so a caller that is limited to centers may read none. Raises
    UserNotAuthorized, GuestIdNotUsable or GuestNotFound, in this order.
    """

    needs = MAY_VIEW_GUESTS

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str) -> Guest:
        caller.require(self.needs)
        with self.storage.read() as unit:
            guest = unit.guests.get(parse_guest_id(guest_id))
        if guest is None:
            raise GuestNotFound
        return guest
