"""List a guest's card-addition sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.errors import GuestNotFound
from domain.guests.guest import parse_guest_id
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_ADD_CARDS, Caller
from domain.sessions.session import CardSession
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSessions:
    """Use case: return a page of a guest's sessions, newest first.

    The token of an open session leads to its hosted page, so it is for callers that may add cards.
    Only sessions of centers that the caller may see are returned and counted. `pages` and `sizes`
    are the values of the query, unparsed. Raises UserNotAuthorized, TooManyItems,
    PageParameterInvalid, GuestIdNotUsable or GuestNotFound, in this order.
    """

    storage: Storage

    def __call__(
        self, caller: Caller, *, guest_id: str, pages: Sequence[str], sizes: Sequence[str]
    ) -> Page[CardSession]:
        caller.require(MAY_ADD_CARDS)
        request = PageRequest.parse(pages=pages, sizes=sizes)
        guest = parse_guest_id(guest_id)
        with self.storage.read() as unit:
            if unit.guests.get(guest) is None:
                raise GuestNotFound
            return unit.sessions.page(guest, caller.centers, request)
