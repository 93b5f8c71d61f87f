"""Use cases that read a center's products."""

from __future__ import annotations

from dataclasses import dataclass

from domain.centers.center import parse_center_id
from domain.errors import InvalidCenterId
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_VIEW_PRODUCTS, Caller
from domain.products.product import Product
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListProducts:
    """Use case: return a page of a center's products, in the order of their creation.

    Raises UserNotAuthorized or InvalidCenterId.
    """

    needs = MAY_VIEW_PRODUCTS

    storage: Storage

    def __call__(self, caller: Caller, *, center_id: str, page: PageRequest) -> Page[Product]:
        caller.require(self.needs)
        center = parse_center_id(center_id)
        caller.require_center(center)
        with self.storage.read() as unit:
            if unit.centers.get(center) is None:
                raise InvalidCenterId
            return unit.products.page(center, page)
