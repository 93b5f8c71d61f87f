"""Find guests by their e-mail address."""

from __future__ import annotations

from dataclasses import dataclass

from domain.guests.guest import Guest, parse_email
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_VIEW_GUESTS, Caller
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchGuests:
    """Use case: return a page of the guests with an e-mail address, in the order of their ids.

    Upper and lower case of A to Z are the same. Guests belong to no center, so a caller that is
    limited to centers may find none. Raises UserNotAuthorized or InvalidField, in this order.
    """

    needs = MAY_VIEW_GUESTS

    storage: Storage

    def __call__(self, caller: Caller, *, email: object, page: PageRequest) -> Page[Guest]:
        caller.require(self.needs)
        known_email = parse_email(email)
        with self.storage.read() as unit:
            return unit.guests.with_email(known_email, page)
