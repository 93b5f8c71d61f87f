"""Use cases that read guests."""

from __future__ import annotations

from dataclasses import dataclass

from domain.errors import GuestNotFound
from domain.guests.guest import Guest, parse_email, parse_guest_id
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_VIEW_GUESTS, Caller
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadGuest:
    """Use case: read a guest by id.

    Guests do not belong to centers, so a caller that is limited to centers may not read them.
    Raises UserNotAuthorized, GuestIdNotUsable or GuestNotFound, in this order.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGuests:
    """Use case: find guests by e-mail address. Return a page of them, sorted by id.

    The letters A to Z are compared without regard to case. Guests do not belong to centers, so a
    caller that is limited to centers may not search for them. Raises UserNotAuthorized or
    InvalidField, in this order.
    """

    needs = MAY_VIEW_GUESTS

    storage: Storage

    def __call__(self, caller: Caller, *, email: object, page: PageRequest) -> Page[Guest]:
        caller.require(self.needs)
        known_email = parse_email(email)
        with self.storage.read() as unit:
            return unit.guests.with_email(known_email, page)
