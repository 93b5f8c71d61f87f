"""Products that a center sells."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Protocol

from domain.errors import InvalidField
from domain.fields import is_clean, parse_line, parse_uuid, without_card_number
from domain.identifiers import CenterId, ProductId
from domain.pagination import Page, PageRequest

MAX_CODE_LENGTH: Final = 100
MAX_NAME_LENGTH: Final = 200
MAX_DESCRIPTION_LENGTH: Final = 5_000
MAX_AMOUNT_DIGITS: Final = 12

_AMOUNT = re.compile(r"[0-9]+(?:\.[0-9]{1,4})?")
_CURRENCY = re.compile(r"[A-Z]{3}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Product:
    """A product of one center. Its price is `amount`, in major units of `currency` (ISO 4217)."""

    id: ProductId
    center_id: CenterId
    code: str
    name: str
    description: str
    amount: Decimal
    currency: str

    @classmethod
    def parse(
        cls,
        *,
        center_id: object,
        id: object,  # noqa: A002  # the name of the field
        code: object,
        name: object,
        description: object,
        amount: object,
        currency: object,
    ) -> Product:
        """Parse a product from a request or a file. Raises InvalidField.

        `description` may be empty and may contain line breaks. `amount` is a decimal number as a
        text.
        """
        return cls(
            center_id=CenterId(parse_uuid("center_id", center_id)),
            id=ProductId(parse_uuid("id", id)),
            # One in ten 13-digit codes (EAN) looks like a card number, so codes are not checked.
            code=parse_line("code", code, max_length=MAX_CODE_LENGTH),
            name=without_card_number("name", parse_line("name", name, max_length=MAX_NAME_LENGTH)),
            description=_parse_description(description),
            amount=_parse_amount(amount),
            currency=_parse_currency(currency),
        )


def _parse_description(value: object) -> str:
    if isinstance(value, str) and len(value) <= MAX_DESCRIPTION_LENGTH:
        on_one_line = value.replace("\r\n", " ").replace("\n", " ")
        if is_clean(on_one_line):
            return without_card_number("description", value)
    raise InvalidField(
        "description", f"at most {MAX_DESCRIPTION_LENGTH} characters, without control characters"
    )


def _parse_amount(value: object) -> Decimal:
    if (
        isinstance(value, str)
        and _AMOUNT.fullmatch(value)
        and len(value.replace(".", "")) <= MAX_AMOUNT_DIGITS
    ):
        return Decimal(value)
    raise InvalidField(
        "amount",
        f"an amount such as 120.50, with at most 4 decimals and {MAX_AMOUNT_DIGITS} digits",
    )


def _parse_currency(value: object) -> str:
    if isinstance(value, str) and _CURRENCY.fullmatch(value):
        return value
    raise InvalidField("currency", "a currency of three capital letters, such as EUR")


class Products(Protocol):
    """Repository of products. Within each center, they are ordered by their creation."""

    def page(self, center_id: CenterId, request: PageRequest) -> Page[Product]:
        """Return a page of a center's products. Later pages are as fast as the first page."""
        ...

    def get(self, product_id: ProductId) -> Product | None:
        """Return the product, or None."""
        ...

    def put_many(self, products: Iterable[Product]) -> None:
        """Store products. Products that are already stored are updated and keep their place.

        The centers must exist. Raises AlreadyStored if a product belongs to another center.
        """
        ...
