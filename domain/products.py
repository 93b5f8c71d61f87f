"""Products that a center sells."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal

from domain.identifiers import CenterId, ProductId


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product of one center; the price is `amount` in major units of `currency` (ISO 4217)."""

    id: ProductId
    center_id: CenterId
    code: str
    name: str
    description: str
    amount: Decimal
    currency: str
