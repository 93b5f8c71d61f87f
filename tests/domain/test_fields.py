"""Centers, guests, products and payment configurations that come from outside."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, Final

import pytest

from adapters.psp_suite.samples import GUEST_ID
from domain.centers.center import Center
from domain.centers.payment_configuration import CardsPerGuest, PaymentConfiguration
from domain.errors import InvalidField
from domain.fields import is_clean
from domain.guests.guest import Guest
from domain.identifiers import MerchantAccount
from domain.products.product import Product
from tests.builders import CENTER_ID, PROVIDER, a_center, a_guest, a_product

VALID: Final[dict[Any, dict[str, object]]] = {
    Center: {"id": CENTER_ID, "name": "Harbor Spa"},
    Guest: {
        "id": GUEST_ID,
        "first_name": "Zo\u00eb",
        "last_name": "Null",
        "email": "zoe@guests.example",
    },
    Product: {
        "center_id": CENTER_ID,
        "id": a_product().id,
        "code": "P-1",
        "name": "Massage 1",
        "description": "An hour of rest",
        "amount": "120.50",
        "currency": "EUR",
    },
    PaymentConfiguration: {
        "provider": PROVIDER,
        "merchant_account": "Harbor_spa-2",
        "avs": True,
        "cards_per_guest": CardsPerGuest.ONE,
        "redirect_origins": ["https://shop.example"],
        "session_minutes": 60,
        "link_minutes": 43_200,
        "card_testing_limits": "guest=5/5",
    },
}


# Any, because it parses every kind of record, with values of any type.
def parse(record: Any, **changes: object) -> Any:
    """Parse a record whose fields are valid except for the `changes`."""
    return record.parse(**VALID[record] | changes)


def test_valid_fields_of_every_record_are_accepted_unchanged() -> None:
    assert parse(Center) == a_center()
    assert parse(Guest) == a_guest()
    assert parse(Product) == a_product()
    assert parse(Product).amount.as_tuple() == Decimal("120.50").as_tuple()
    assert parse(PaymentConfiguration) == PaymentConfiguration(
        provider=PROVIDER,
        merchant_account=MerchantAccount("Harbor_spa-2"),
        avs=True,
        cards_per_guest=CardsPerGuest.ONE,
        redirect_origins=("https://shop.example",),
        session_minutes=60,
        link_minutes=43_200,
        card_testing_limits="guest=5/5",
    )


@pytest.mark.parametrize(
    ("record", "field"), [(Center, "id"), (Guest, "id"), (Product, "id"), (Product, "center_id")]
)
def test_the_id_of_a_center_guest_or_product_is_stored_in_lower_case(
    record: Any, field: str
) -> None:
    some_id = "ABCDEFAB-CDEF-4ABC-8DEF-ABCDEFABCDEF"

    assert getattr(parse(record, **{field: some_id}), field) == some_id.lower()


@pytest.mark.parametrize("email", ["", None])
def test_an_empty_email_address_counts_as_absent(email: object) -> None:
    assert parse(Guest, email=email).email is None


def test_a_redirect_origin_given_in_two_spellings_is_stored_once() -> None:
    origins = ["https://shop.example", "myspa://", "HTTPS://Shop.Example/"]

    configuration = parse(PaymentConfiguration, redirect_origins=origins)

    assert configuration.redirect_origins == ("https://shop.example", "myspa://")


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (Center, "name", "x" * 200),
        (Guest, "first_name", "x" * 200),
        (Guest, "last_name", "x" * 200),
        (Product, "code", "x" * 100),
        (Product, "name", "x" * 200),
        (Product, "description", ""),
        (Product, "description", "One.\r\n\nTwo."),
        (Product, "description", "x" * 5000),
        (PaymentConfiguration, "merchant_account", "x" * 64),
        (PaymentConfiguration, "session_minutes", 15),
        (PaymentConfiguration, "session_minutes", 1440),
        (PaymentConfiguration, "link_minutes", None),
        (PaymentConfiguration, "link_minutes", 60),
        (PaymentConfiguration, "link_minutes", 43_200),
        (PaymentConfiguration, "card_testing_limits", None),
        (PaymentConfiguration, "card_testing_limits", "center=off/1, guest=999999/off"),
    ],
)
def test_field_values_at_the_documented_limits_are_accepted(
    record: Any, field: str, value: object
) -> None:
    assert getattr(parse(record, **{field: value}), field) == value


@pytest.mark.parametrize("amount", ["0", "0.0001", "999999999999", "99999999.9999", "007.5"])
def test_a_valid_amount_for_a_product_is_accepted_unchanged(amount: str) -> None:
    assert parse(Product, amount=amount).amount == Decimal(amount)


UUID: Final = "a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3"
LINE: Final = "1 to 200 characters, not blank, without control characters and line breaks"
SHORT_LINE: Final = "1 to 100 characters, not blank, without control characters and line breaks"
NO_CARD: Final = "text without a card number"
EMAIL: Final = "an e-mail address"
DESCRIPTION: Final = "at most 5000 characters, without control characters"
AMOUNT: Final = "an amount such as 120.50, with at most 4 decimals and 12 digits"
CURRENCY: Final = "a currency of three capital letters, such as EUR"
ACCOUNT: Final = "1 to 64 letters, digits, hyphens and underscores"
LIMITS: Final = "sessions and refused cards in 24 hours, such as guest=10/10,center=off/500"
ORIGIN: Final = "an origin such as https://shop.example, or an app's scheme such as myspa://"

REFUSED: Final[list[tuple[Any, str, str, list[object]]]] = [
    (Center, "id", UUID, ["harbor", 7]),
    (Center, "name", LINE, ["x" * 201]),
    (Center, "name", NO_CARD, ["Spa 4242 4242 4242 4242"]),
    (Guest, "id", UUID, [GUEST_ID.replace("-", "")]),
    (Guest, "first_name", LINE, [None, "\u3000", "x" * 201]),
    (Guest, "first_name", LINE, ["\u200b", "\u3164\u115f", "\u2800 \u2800", "\u200d\ufe0f"]),
    (Guest, "first_name", NO_CARD, ["Zo\u00eb 4242 4242 4242 4242"]),
    (Guest, "last_name", LINE, ["two\nlines", "x" * 201]),
    (Guest, "last_name", NO_CARD, ["Null 4242 4242 4242 4242"]),
    (Guest, "email", EMAIL, ["zoe", " ", f"zoe@{'b.' * 130}c", 7]),
    (Guest, "email", NO_CARD, ["4242424242424242@guests.example"]),
    (Product, "center_id", UUID, [""]),
    (Product, "id", UUID, ["7"]),
    (Product, "code", SHORT_LINE, ["", "x" * 101]),
    (Product, "name", LINE, ["a\x00b", "x" * 201]),
    (Product, "name", NO_CARD, ["Oil 4242 4242 4242 4242"]),
    (Product, "description", NO_CARD, ["4242424242424242\ncvc 123"]),
    (Product, "description", DESCRIPTION, ["x" * 5001, "a\rb", "a\u2028b", None]),
    (Product, "amount", AMOUNT, ["", "-1", "1.", ".5", "1.23456", "1e3", "1_000", " 1", "1\n"]),
    (Product, "amount", AMOUNT, ["1,50", "NaN", "9" * 13, "999999999.9999", "\u0661", 120.5]),
    (Product, "currency", CURRENCY, ["", "eur", "EURO", "EU1", "\u0415UR", "EUR\n", None]),
    (PaymentConfiguration, "merchant_account", ACCOUNT, ["", "x" * 65, "caf\u00e9", "two words"]),
    (PaymentConfiguration, "redirect_origins", ORIGIN, [["https://shop.example", "shop.example"]]),
    (PaymentConfiguration, "session_minutes", "from 15 to 1440", [14, 1441]),
    (PaymentConfiguration, "link_minutes", "from 60 to 43200", [0, 59, 43_201]),
    (PaymentConfiguration, "card_testing_limits", LIMITS, ["off", "guest=10", "caller=1/1"]),
    (PaymentConfiguration, "card_testing_limits", LIMITS, ["guest-everywhere=1/1", "guest=0/1"]),
    (PaymentConfiguration, "card_testing_limits", LIMITS, ["guest=1/1,guest=2/2", "guest=1/1,"]),
]


@pytest.mark.parametrize(
    ("record", "field", "expected", "value"),
    [(*case, value) for *case, values in REFUSED for value in values],
)
def test_the_error_about_an_invalid_field_says_which_form_is_expected(
    record: Any, field: str, expected: str, value: object
) -> None:
    with pytest.raises(InvalidField) as refused:
        parse(record, **{field: value})

    assert (refused.value.field, refused.value.expected) == (field, expected)
    assert str(refused.value) == f"{field} must be {expected}"


def test_a_guest_whose_first_name_with_the_last_name_forms_a_card_number_is_refused() -> None:
    with pytest.raises(InvalidField, match=r"^last_name must be text without a card number$"):
        parse(Guest, first_name="42424242", last_name="42424242")


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("Zo\u00eb", True),
        ("\u0646\u0627\u200c\u0645\u0647", True),
        ("a\tb", False),
        ("a\x7f", False),
        ("\x9b", False),
        ("abc\u202edef", False),
        ("abc\u2066def", False),
    ],
)
def test_text_that_is_accepted_contains_no_control_characters(text: str, clean: bool) -> None:
    assert is_clean(text) is clean
