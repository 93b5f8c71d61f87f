"""Callers and their permissions."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain.errors import UserNotAuthorized
from domain.identifiers import CallerName, CenterId


class Permission(StrEnum):
    """The permissions that a token may have."""

    GUESTS_VIEW = "guests:view"
    GUESTS_ADD = "guests:add"
    GUESTS_EDIT = "guests:edit"
    GUESTS_DELETE = "guests:delete"
    GUESTS_ERASE = "guests:erase"
    GUESTS_EVIDENCE = "guests:evidence"
    GUESTS_PORTAL = "guests:portal"
    PRODUCTS_VIEW = "products:view"
    PRODUCTS_EDIT = "products:edit"
    PAYMENTS_USE = "payments:use"
    EVENTS_READ = "events:read"


@dataclass(frozen=True, slots=True)
class Needs:
    """The permissions that a use case requires: at least one of `any_of`, and all of `also`.

    If both are empty, every caller may call the use case. With `every_center`, callers that are
    limited to some centers may not call it, because guests do not belong to centers.
    """

    any_of: tuple[Permission, ...]
    every_center: bool = False
    also: tuple[Permission, ...] = ()


ANY_CALLER: Final = Needs(())
MAY_ADD_CARDS: Final = Needs((Permission.GUESTS_ADD, Permission.GUESTS_EDIT))
MAY_VIEW_CARDS: Final = Needs((Permission.GUESTS_VIEW, *MAY_ADD_CARDS.any_of))
MAY_REMOVE_CARDS: Final = Needs((Permission.GUESTS_EDIT, Permission.GUESTS_DELETE))
MAY_VIEW_GUESTS: Final = Needs((Permission.GUESTS_VIEW,), every_center=True)
MAY_ADD_GUESTS: Final = Needs((Permission.GUESTS_ADD,), every_center=True)
MAY_EDIT_GUESTS: Final = Needs((Permission.GUESTS_EDIT,), every_center=True)
MAY_PUT_GUESTS: Final = Needs((*MAY_ADD_GUESTS.any_of, *MAY_EDIT_GUESTS.any_of), every_center=True)
MAY_ERASE_GUESTS: Final = Needs((Permission.GUESTS_ERASE,), every_center=True)
MAY_MERGE_GUESTS: Final = Needs(
    MAY_EDIT_GUESTS.any_of, every_center=True, also=MAY_ERASE_GUESTS.any_of
)
MAY_READ_EVIDENCE: Final = Needs((Permission.GUESTS_EVIDENCE,))
MAY_OPEN_PORTALS: Final = Needs((Permission.GUESTS_PORTAL,))
MAY_EDIT_PRODUCTS: Final = Needs((Permission.PRODUCTS_EDIT,))
MAY_VIEW_PRODUCTS: Final = Needs((Permission.PRODUCTS_VIEW,))
MAY_USE_CARDS: Final = Needs((Permission.PAYMENTS_USE,))
MAY_READ_EVENTS: Final = Needs((Permission.EVENTS_READ,))


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller: its unique name, its permissions, and its centers.

    The caller may act only for its `centers`. If `centers` is None, there is no limit.
    """

    name: CallerName
    permissions: frozenset[Permission]
    centers: frozenset[CenterId] | None = None

    def may(self, needs: Needs) -> bool:
        """Return whether the caller has the required permissions."""
        has_any = not (needs.any_of and self.permissions.isdisjoint(needs.any_of))
        is_permitted = has_any and self.permissions.issuperset(needs.also)
        return is_permitted and (self.centers is None or not needs.every_center)

    def require(self, needs: Needs) -> None:
        """Raise UserNotAuthorized if the caller lacks a required permission."""
        if not self.may(needs):
            raise UserNotAuthorized

    def sees(self, center_id: CenterId) -> bool:
        """Return whether the caller may see records at this center."""
        return self.centers is None or center_id in self.centers

    def require_center(self, center_id: CenterId) -> None:
        """Raise UserNotAuthorized if the caller is limited to other centers."""
        if not self.sees(center_id):
            raise UserNotAuthorized
