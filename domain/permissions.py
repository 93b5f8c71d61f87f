"""Who calls, and what they may do."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from domain.errors import UserNotAuthorized
from domain.identifiers import CallerName, CenterId


class Permission(StrEnum):
    """What a token may be issued for."""

    GUESTS_VIEW = "guests:view"
    GUESTS_ADD = "guests:add"
    GUESTS_EDIT = "guests:edit"
    GUESTS_DELETE = "guests:delete"
    GUESTS_ERASE = "guests:erase"
    PRODUCTS_VIEW = "products:view"
    PRODUCTS_EDIT = "products:edit"
    PAYMENTS_USE = "payments:use"


MAY_ADD_CARDS: Final = frozenset({Permission.GUESTS_ADD, Permission.GUESTS_EDIT})
MAY_VIEW_CARDS: Final = MAY_ADD_CARDS | {Permission.GUESTS_VIEW}
MAY_REMOVE_CARDS: Final = frozenset({Permission.GUESTS_EDIT, Permission.GUESTS_DELETE})
MAY_VIEW_GUESTS: Final = frozenset({Permission.GUESTS_VIEW})
MAY_ADD_GUESTS: Final = frozenset({Permission.GUESTS_ADD})
MAY_EDIT_GUESTS: Final = frozenset({Permission.GUESTS_EDIT})
MAY_PUT_GUESTS: Final = MAY_ADD_GUESTS | MAY_EDIT_GUESTS
MAY_ERASE_GUESTS: Final = frozenset({Permission.GUESTS_ERASE})
MAY_EDIT_PRODUCTS: Final = frozenset({Permission.PRODUCTS_EDIT})
MAY_VIEW_PRODUCTS: Final = frozenset({Permission.PRODUCTS_VIEW})
MAY_USE_CARDS: Final = frozenset({Permission.PAYMENTS_USE})


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """An authenticated caller: its unique name, its permissions, and the centers it may act for.

    `centers` is None when the caller is not limited to some centers.
    """

    name: CallerName
    permissions: frozenset[Permission]
    centers: frozenset[CenterId] | None = None

    def may(self, any_of: Collection[Permission]) -> bool:
        """Return whether the caller has at least one of these permissions."""
        return not self.permissions.isdisjoint(any_of)

    def require(self, any_of: Collection[Permission]) -> None:
        """Raise UserNotAuthorized unless the caller has at least one of these permissions."""
        if not self.may(any_of):
            raise UserNotAuthorized

    def sees(self, center_id: CenterId) -> bool:
        """Return whether the caller may see records of this center."""
        return self.centers is None or center_id in self.centers

    @property
    def may_view_guests(self) -> bool:
        """Whether the caller may read guests. They belong to no center."""
        return self.centers is None and self.may(MAY_VIEW_GUESTS)

    def require_all_centers(self) -> None:
        """Raise UserNotAuthorized when the caller is limited to some centers."""
        if self.centers is not None:
            raise UserNotAuthorized

    def require_center(self, center_id: CenterId) -> None:
        """Raise UserNotAuthorized when the caller is limited to other centers."""
        if not self.sees(center_id):
            raise UserNotAuthorized
