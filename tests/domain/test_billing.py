from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import asdict

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from domain.billing import COUNTRY_CODES, MAX_LENGTHS, BillingInfo, parse_billing_info
from domain.errors import BillingInfoInvalid, Refusal
from domain.fields import is_clean
from tests.fuzzing import TIMES
from tests.strategies import anything

RIGHT: dict[str, list[object]] = {
    "first_name": ["Zo\u00eb"],
    "last_name": ["\u0646\u0627\u200c\u0645\u0647"],
    "email": ["zoe+cards@guests.example", "zoe@guests.test"],
    "country_code": ["DE"],
    "phone": [
        *("+49 (30) 901820-0", "+12125550100", "+1234567", "+123456789012345"),
        # The last digit is a check digit, as in a card number.
        *("+49 1512 3456787", "+34 612 345 673", "+39 06 1234 5673", "+62 812 3456 78909"),
        # This has as many digits as a card number, but a wrong check digit.
        "+378282246310006",
    ],
    "address": ["1 Main St", "1234567890123 Main St"],
}
WRONG: dict[str, list[object]] = {
    "first_name": [7, ["Zoe"], "x" * 101, "6011-0009-9013-9424"],
    "last_name": ["Null\x00"],
    "city": ["Sea\r\nttle"],
    "state": ["W\u2028A"],
    "email": [
        *("zoe", "zoe@", "a@b@c.example", "zoe@-x.example", "4111111111111111@guests.example")
    ],
    "country_code": ["XX", "USA", "\uff44\uff45"],
    "zipcode": ["1" * 21, "4111111111111111"],
    "phone": [
        *("2125550100", "+0 123 456 78", "+123456", "+1234567890123456", "tel:+12125550100"),
        "+\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668",
        *("+378282246310005", "+37 (1449) 635398431", "+341111111111111", "+3056 930902 5904"),
        "+38520000023237",
    ],
    "address": [
        *("\ud800", "\x1b[31mred", "4111111111111111", "card 4111 1111 1111 1111 CVC 737"),
        *("Flat 12, 4111 1111 1111 1111", "12 4111111111111111", "4111 1111 1111 1111 98101"),
        "\u0664\u0661" + "\u0661" * 14,
    ],
}


def pairs(table: dict[str, list[object]]) -> list[tuple[str, object]]:
    return [(name, value) for name, values in table.items() for value in values]


@pytest.mark.parametrize(("name", "value"), pairs(RIGHT))
def test_a_valid_billing_field_is_accepted_unchanged(name: str, value: object) -> None:
    billing_info = parse_billing_info({name: value})

    assert getattr(billing_info, name) == value


@pytest.mark.parametrize(("name", "value"), pairs(WRONG))
def test_the_refusal_of_billing_info_names_the_invalid_field(name: str, value: object) -> None:
    with pytest.raises(BillingInfoInvalid) as refused:
        parse_billing_info({name: value})
    assert refused.value.message == f"billing_info.{name} is invalid"


@pytest.mark.parametrize(
    ("split", "named"),
    [
        ({"address": "4111 1111", "zipcode": "1111 1111"}, "address"),
        ({"address": "41111111", "city": "11111111"}, "address"),
        ({"last_name": "411111", "address": "1111111111"}, "address"),
        ({"state": "4111", "zipcode": "1111", "city": "1111 1111"}, "address"),
        ({"first_name": "4111 1111", "last_name": "1111 1111"}, "last_name"),
    ],
)
def test_a_card_number_split_over_several_billing_fields_is_refused(
    split: dict[str, str], named: str
) -> None:
    with pytest.raises(BillingInfoInvalid) as refused:
        parse_billing_info(split)
    assert refused.value.message == f"billing_info.{named} is invalid"


@pytest.mark.parametrize("value", [None, {}, {"email": ""}, {"city": "  "}, {"colour": "red"}])
def test_empty_billing_info_counts_as_absent(value: object) -> None:
    assert parse_billing_info(value) is None


def test_a_country_code_may_be_given_in_lower_case() -> None:
    assert parse_billing_info({"country_code": "us"}) == BillingInfo(country_code="US")


WORDS = st.sampled_from(
    (
        *("1 Main St", "Zo\u00eb", "zoe@guests.example", "+1 206 555 0100", "us", "98101", " "),
        *("4242", "4242 4242", "4242424242424242", "-", "@", "\x00", "\u2028", "\ud800", "\u0664"),
    )
)
TEXTS = st.lists(WORDS | st.text(max_size=5), max_size=6).map("".join)


@settings(max_examples=40 * TIMES)
@given(st.dictionaries(st.sampled_from(list(MAX_LENGTHS)), TEXTS | anything, max_size=4))
def test_billing_info_that_is_accepted_is_clean_text_without_a_card_number(
    value: dict[str, object],
) -> None:
    with suppress(Refusal):
        read = parse_billing_info(value)
        kept = {} if read is None else {k: v for k, v in asdict(read).items() if v is not None}
        for name, text in kept.items():
            assert text == text.strip() != ""
            assert len(text) <= MAX_LENGTHS[name]
            assert is_clean(text)
            assert "4242424242424242" not in re.findall(r"\d+", text)
            assert text.casefold() == str(value[name]).strip().casefold()
        assert parse_billing_info(kept) == read


def test_every_iso_country_code_is_accepted() -> None:
    assert len(COUNTRY_CODES) == 250
