"""Products."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from typing_extensions import override

from adapters.sql.repositories.repository import Repository
from adapters.sql.rows import Rows
from domain.identifiers import CenterId, ProductId
from domain.pagination import Page, PageRequest
from domain.products.product import Product, Products
from domain.storage import AlreadyStored

_PRODUCTS = Rows("products", Product, key=("id",))

_PUT_PRODUCT: Final = (
    f"INSERT INTO products ({_PRODUCTS.listed}, position) VALUES ({_PRODUCTS.parameters}, "
    "(SELECT coalesce(max(position), 0) + 1 FROM products WHERE center_id = :center_id)) "
    f"{_PRODUCTS.or_replace} WHERE products.center_id = excluded.center_id"
)


class SqlProducts(Repository, Products):
    """Stores products. A product keeps the position that it was first given at its center."""

    @override
    def get(self, product_id: ProductId) -> Product | None:
        return _PRODUCTS.get(self._transaction, id=product_id)

    @override
    def page(self, center_id: CenterId, request: PageRequest) -> Page[Product]:
        (total,) = self._transaction.one(
            "SELECT coalesce(max(position), 0) FROM products WHERE center_id = :center_id",
            {"center_id": center_id},
        )
        if request.before >= total:
            return Page(items=(), total=total, request=request)
        items = _PRODUCTS.find(
            self._transaction,
            "WHERE center_id = :center_id AND position > :before AND position <= :last "
            "ORDER BY position",
            {
                "center_id": center_id,
                "before": request.before,
                "last": request.before + request.size,
            },
        )
        return Page(items=items, total=total, request=request)

    @override
    def put_many(self, products: Iterable[Product]) -> None:
        listed = list(products)
        for center_id in sorted({product.center_id for product in listed}):
            self._transaction.lock("products", center_id)
        stored = self._transaction.execute_many(_PUT_PRODUCT, map(_PRODUCTS.row, listed))
        if stored < len(listed):
            raise AlreadyStored
