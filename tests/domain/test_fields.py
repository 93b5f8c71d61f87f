"""Centers, guests, products and payment configurations that come from outside."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest

from adapters.psp.contract.samples import GUEST_ID
from domain.centers import Center
from domain.fields import InvalidField
from domain.guests import Guest
from domain.identifiers import MerchantAccount
from domain.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.products import Product
from tests.builders import CENTER_ID, PROVIDER, a_center, a_guest, a_product

# Any, because these are keyword arguments, and wrong ones.
CENTER: Final[dict[str, Any]] = {"id": CENTER_ID, "name": "Harbor Spa"}
GUEST: Final[dict[str, Any]] = {
    "id": GUEST_ID,
    "first_name": "Zo\u00eb",
    "last_name": "Null",
    "email": "zoe@guests.example",
}
PRODUCT: Final[dict[str, Any]] = {
    "center_id": CENTER_ID,
    "id": a_product().id,
    "code": "P-1",
    "name": "Massage 1",
    "description": "An hour of rest",
    "amount": "120.50",
    "currency": "EUR",
}
CONFIGURATION: Final[dict[str, Any]] = {
    "provider": PROVIDER,
    "merchant_account": "Harbor_spa-2",
    "avs": True,
    "cards_per_guest": CardsPerGuest.ONE,
    "redirect_origins": ["https://shop.example"],
    "session_minutes": 60,
}

LINE: Final = "{} characters, not blank, without control characters and line breaks"
UUID: Final = "a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3"
EMAIL: Final = "an e-mail address, or nothing"
NO_CARD: Final = "text without a card number"
DESCRIPTION: Final = "at most 5000 characters, without control characters"
AMOUNT: Final = "an amount such as 120.50, with at most 4 decimals and 12 digits"
CURRENCY: Final = "a currency of three capital letters, such as EUR"
ACCOUNT: Final = "1 to 64 letters, digits, hyphens and underscores"
ORIGIN: Final = "an origin such as https://shop.example, or an app's scheme such as myspa://"


def test_fields_of_the_right_form_are_kept() -> None:
    assert Center.parse(**CENTER) == a_center()
    assert Guest.parse(**GUEST) == a_guest()
    product = Product.parse(**PRODUCT)
    assert product == a_product()
    assert product.amount.as_tuple() == Decimal("120.50").as_tuple()
    assert PaymentConfiguration.parse(**CONFIGURATION) == PaymentConfiguration(
        provider=PROVIDER,
        merchant_account=MerchantAccount("Harbor_spa-2"),
        avs=True,
        cards_per_guest=CardsPerGuest.ONE,
        redirect_origins=("https://shop.example",),
        session_minutes=60,
    )


def test_ids_are_kept_in_lower_case() -> None:
    some_id = "ABCDEFAB-CDEF-4ABC-8DEF-ABCDEFABCDEF"

    assert Center.parse(**CENTER | {"id": some_id}).id == some_id.lower()
    assert Guest.parse(**GUEST | {"id": some_id}).id == some_id.lower()
    product = Product.parse(**PRODUCT | {"id": some_id, "center_id": some_id})
    assert (product.id, product.center_id) == (some_id.lower(), some_id.lower())


@pytest.mark.parametrize("email", ["", None])
def test_an_empty_address_is_none(email: object) -> None:
    assert Guest.parse(**GUEST | {"email": email}).email is None


def test_an_origin_in_two_spellings_is_kept_once() -> None:
    origins = ["https://shop.example", "myspa://", "HTTPS://Shop.Example/"]

    configuration = PaymentConfiguration.parse(**CONFIGURATION | {"redirect_origins": origins})

    assert configuration.redirect_origins == ("https://shop.example", "myspa://")


@pytest.mark.parametrize(
    ("record", "fields", "field", "value"),
    [
        (Center, CENTER, "name", "x" * 200),
        (Guest, GUEST, "first_name", "x" * 200),
        (Guest, GUEST, "last_name", "x" * 200),
        (Product, PRODUCT, "code", "x" * 100),
        (Product, PRODUCT, "name", "x" * 200),
        (Product, PRODUCT, "description", ""),
        (Product, PRODUCT, "description", "One.\r\n\nTwo."),
        (Product, PRODUCT, "description", "x" * 5000),
        (PaymentConfiguration, CONFIGURATION, "merchant_account", "x" * 64),
        (PaymentConfiguration, CONFIGURATION, "session_minutes", 15),
        (PaymentConfiguration, CONFIGURATION, "session_minutes", 1440),
    ],
)
def test_the_bounds_belong_to_what_is_taken(
    record: Any, fields: dict[str, Any], field: str, value: object
) -> None:
    assert getattr(record.parse(**fields | {field: value}), field) == value


@pytest.mark.parametrize("amount", ["0", "0.0001", "999999999999", "99999999.9999", "007.5"])
def test_amounts(amount: str) -> None:
    assert Product.parse(**PRODUCT | {"amount": amount}).amount == Decimal(amount)


@pytest.mark.parametrize(
    ("record", "fields", "field", "value", "expected"),
    [
        (Center, CENTER, "id", "harbor", UUID),
        (Center, CENTER, "name", "x" * 201, LINE.format("1 to 200")),
        (Guest, GUEST, "id", GUEST_ID.replace("-", ""), UUID),
        (Guest, GUEST, "first_name", None, LINE.format("1 to 200")),
        (Guest, GUEST, "email", 7, EMAIL),
        (Product, PRODUCT, "description", None, DESCRIPTION),
        (Product, PRODUCT, "amount", 120.5, AMOUNT),
        (Product, PRODUCT, "currency", None, CURRENCY),
        (Guest, GUEST, "first_name", "\u3000", LINE.format("1 to 200")),
        (Guest, GUEST, "first_name", "x" * 201, LINE.format("1 to 200")),
        (Guest, GUEST, "first_name", "Zo\u00eb 4242 4242 4242 4242", NO_CARD),
        (Guest, GUEST, "last_name", "two\nlines", LINE.format("1 to 200")),
        (Guest, GUEST, "last_name", "x" * 201, LINE.format("1 to 200")),
        (Guest, GUEST, "last_name", "Null 4242 4242 4242 4242", NO_CARD),
        (Guest, GUEST, "email", "zoe", EMAIL),
        (Guest, GUEST, "email", " ", EMAIL),
        (Guest, GUEST, "email", f"zoe@{'b.' * 130}c", EMAIL),
        (Guest, GUEST, "email", "4242424242424242@guests.example", NO_CARD),
        (Product, PRODUCT, "center_id", "", UUID),
        (Product, PRODUCT, "id", "7", UUID),
        (Product, PRODUCT, "code", "", LINE.format("1 to 100")),
        (Product, PRODUCT, "code", "x" * 101, LINE.format("1 to 100")),
        (Product, PRODUCT, "name", "a\x00b", LINE.format("1 to 200")),
        (Product, PRODUCT, "name", "x" * 201, LINE.format("1 to 200")),
        (Product, PRODUCT, "description", "x" * 5001, DESCRIPTION),
        (Product, PRODUCT, "description", "a\rb", DESCRIPTION),
        (Product, PRODUCT, "description", "a\u2028b", DESCRIPTION),
        *((Product, PRODUCT, "amount", amount, AMOUNT) for amount in ("", "-1", "1.", ".5")),
        *((Product, PRODUCT, "amount", amount, AMOUNT) for amount in ("1.23456", "1e3", "1_000")),
        *((Product, PRODUCT, "amount", amount, AMOUNT) for amount in (" 1", "NaN", "1\n", "1,50")),
        *((Product, PRODUCT, "amount", amount, AMOUNT) for amount in ("9" * 13, "999999999.9999")),
        (Product, PRODUCT, "amount", "\u0661", AMOUNT),
        *((Product, PRODUCT, "currency", text, CURRENCY) for text in ("", "eur", "EURO", "EU1")),
        (Product, PRODUCT, "currency", "\u0415UR", CURRENCY),
        (Product, PRODUCT, "currency", "EUR\n", CURRENCY),
        (PaymentConfiguration, CONFIGURATION, "merchant_account", "", ACCOUNT),
        (PaymentConfiguration, CONFIGURATION, "merchant_account", "x" * 65, ACCOUNT),
        (PaymentConfiguration, CONFIGURATION, "merchant_account", "caf\u00e9", ACCOUNT),
        (PaymentConfiguration, CONFIGURATION, "merchant_account", "two words", ACCOUNT),
        (PaymentConfiguration, CONFIGURATION, "redirect_origins", ["shop.example"], ORIGIN),
        (PaymentConfiguration, CONFIGURATION, "session_minutes", 14, "from 15 to 1440"),
        (PaymentConfiguration, CONFIGURATION, "session_minutes", 1441, "from 15 to 1440"),
    ],
)
def test_a_field_of_another_form_is_named_with_what_is_expected(
    record: Any, fields: dict[str, Any], field: str, value: object, expected: str
) -> None:
    with pytest.raises(InvalidField) as refused:
        record.parse(**fields | {field: value})

    assert (refused.value.field, refused.value.expected) == (field, expected)
    assert str(refused.value) == f"{field} must be {expected}"
