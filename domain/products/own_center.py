"""Check that a product stays at the center at which it was created."""

from __future__ import annotations

from domain.errors import InvalidCenterId, InvalidProductId
from domain.products.product import Product
from domain.storage import UnitOfWork


def require_own_center(unit: UnitOfWork, product: Product) -> None:
    """Check that a product's center exists, and that the product belongs to it.

    Raises InvalidCenterId or InvalidProductId.
    """
    if unit.centers.get(product.center_id) is None:
        raise InvalidCenterId
    stored = unit.products.get(product.id)
    if stored is not None and stored.center_id != product.center_id:
        raise InvalidProductId
