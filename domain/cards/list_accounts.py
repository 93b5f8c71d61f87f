"""List a guest's cards on file."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.cards.account import Account
from domain.centers.center import parse_center_id
from domain.errors import GuestNotFound, InvalidCenterId
from domain.guests.guest import parse_guest_id
from domain.identifiers import CenterId
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_VIEW_CARDS, Caller
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAccounts:
    """Use case: return a page of a guest's active payment accounts, oldest first.

    Only accounts of centers that the caller may see are returned and counted; a center id narrows
    them to one center. `center_ids` has the values of the query, unparsed. Raises
    UserNotAuthorized, InvalidCenterId, GuestIdNotUsable or GuestNotFound.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(
        self,
        caller: Caller,
        *,
        guest_id: str,
        center_ids: Sequence[str],
        page: PageRequest,
    ) -> Page[Account]:
        caller.require(self.needs)
        only = _parse_only_center(center_ids)
        if only is not None:
            caller.require_center(only)
        centers = caller.centers if only is None else frozenset({only})
        guest = parse_guest_id(guest_id)
        with self.storage.read() as unit:
            if only is not None and unit.centers.get(only) is None:
                raise InvalidCenterId
            if unit.guests.get(guest) is None:
                raise GuestNotFound
            return unit.accounts.page(guest, centers, page)


def _parse_only_center(center_ids: Sequence[str]) -> CenterId | None:
    if len(center_ids) > 1:
        raise InvalidCenterId
    return parse_center_id(center_ids[0]) if center_ids else None
