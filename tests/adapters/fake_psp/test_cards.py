from __future__ import annotations

import pytest

from adapters.fake_psp import countries
from adapters.fake_psp.cards import (
    MESSAGES,
    UNCLEAN,
    CardEntry,
    EntryRefused,
    read_entry,
    repeatable,
)
from adapters.psp.contract.clock import START
from domain.billing import COUNTRY_CODES
from tests.adapters.fake_psp.conftest import ADDRESS, GOOD, UNPUBLISHED

CARD = {"number": GOOD, "expiry": "08 / 30", "cvc": "123"}


def read(*, avs: bool = False, **typed: str) -> CardEntry:
    return read_entry({**CARD, **ADDRESS, **typed}, avs=avs, now=START)


def errors(*, avs: bool = False, **typed: str) -> dict[str, str]:
    with pytest.raises(EntryRefused) as refused:
        read(avs=avs, **typed)
    return dict(refused.value.errors)


@pytest.mark.parametrize(
    "expiry",
    [
        *(
            "08/30",
            "08 / 30",
            "8/30",
            "8 30",
            "08-30",
            "08.30",
            "0830",
            "830",
            " 08/30 ",
            "08 / /30",
        ),
        *("08/2030", "8 / 2030", "08 30", "082030", "2030-08", "08\u00a0/\u00a030"),
    ],
)
def test_an_expiry_date_may_be_written_in_many_ways(expiry: str) -> None:
    entry = read(expiry=expiry)
    assert (entry.expiry_month, entry.expiry_year) == (8, 2030)
    assert repeatable("expiry", expiry) == expiry


def test_a_card_works_through_the_month_it_expires_in() -> None:
    assert read(expiry="11/26").expiry_month == 11


@pytest.mark.parametrize(
    ("expiry", "fault"),
    [
        ("", "empty"),
        ("123", "form"),
        ("12/3", "form"),
        ("12/030", "form"),
        ("12.30.1", "form"),
        ("2030-8-01", "form"),
        ("1/2/30", "form"),
        ("١٢/٣٠", "form"),
        ("12/30\x00", "form"),
        ("12/30\n", "form"),
        ("\udc8012/30", "form"),
        ("12 / 0000", "form"),
        ("13/30", "month"),
        ("00/30", "month"),
        ("10/26", "expired"),
        ("12/00", "expired"),
        ("12 / 1999", "expired"),
        ("12 / 2077", "far"),
        ("12/99", "far"),
    ],
)
def test_an_expiry_date_that_cannot_be_is_refused(expiry: str, fault: str) -> None:
    assert errors(expiry=expiry) == {"expiry": MESSAGES["expiry"][fault]}


@pytest.mark.parametrize(
    "number",
    [
        "4242 4242 4242 4242",
        "4242-4242-4242-4242",
        "  4242 42424242 4242 ",
        "4242\u00a04242\u00a04242\u00a04242",
    ],
)
def test_a_number_may_have_gaps(number: str) -> None:
    assert read(number=number).number == GOOD


@pytest.mark.parametrize(
    ("number", "fault"),
    [
        ("", "empty"),
        ("   ", "empty"),
        ("42424242", "form"),
        ("4" * 20, "form"),
        ("4242 4242 4242 424O", "form"),
        ("٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢", "form"),
        ("4242424242424242\x00", "form"),
        ("4242424242424242\n", "form"),
        ("\ud800424242424242424", "form"),
        ("4242424242424241", "slip"),
        ("4242424242424224", "slip"),
    ],
)
def test_a_number_that_cannot_be_is_refused(number: str, fault: str) -> None:
    assert errors(number=number) == {"number": MESSAGES["number"][fault]}


@pytest.mark.parametrize(
    ("cvc", "fault"),
    [("", "empty"), ("12", "form"), ("1234", "form"), ("12a", "form"), ("١٢٣", "form")],
)
def test_a_security_code_that_cannot_be_is_refused(cvc: str, fault: str) -> None:
    assert errors(cvc=cvc) == {"cvc": MESSAGES["cvc"][fault]}


def test_every_wrong_field_is_named_in_the_order_of_the_page() -> None:
    assert list(errors(avs=True, number="", cvc="", address="", country_code="")) == [
        "number",
        "cvc",
        "address",
        "country_code",
    ]


def test_nothing_typed_at_all_is_refused() -> None:
    with pytest.raises(EntryRefused) as refused:
        read_entry({}, avs=True, now=START)
    assert list(refused.value.errors) == [
        "number",
        "expiry",
        "cvc",
        "address",
        "zipcode",
        "country_code",
    ]


def test_a_billing_address_counts_only_when_it_is_verified() -> None:
    assert read(avs=False, address="", zipcode="\x00", country_code="XX").number == GOOD


def test_city_and_state_may_be_left_out() -> None:
    assert read(avs=True, city="", state="").zipcode == "98101"


def test_a_country_without_postal_codes_needs_none() -> None:
    assert read(avs=True, zipcode="", country_code="AE").zipcode == ""
    assert errors(avs=True, zipcode="") == {"zipcode": MESSAGES["zipcode"]["empty"]}


def test_a_country_must_be_on_the_list() -> None:
    assert errors(avs=True, country_code="XX") == {
        "country_code": MESSAGES["country_code"]["unknown"]
    }


def test_a_postal_code_in_another_scripts_digits_is_refused() -> None:
    assert errors(avs=True, zipcode="١٢٣٤٥") == {"zipcode": MESSAGES["zipcode"]["form"]}


@pytest.mark.parametrize("field", list(ADDRESS))
@pytest.mark.parametrize("bad", ["a\x00b", "a\nb", "\x1b[31m", "a\ud800", "a\u2028b", "9" * 500])
def test_a_billing_field_that_cannot_be_shown_or_kept_is_refused(field: str, bad: str) -> None:
    assert errors(avs=True, **{field: bad}) == {field: UNCLEAN}


def test_every_country_has_a_name() -> None:
    assert set(countries.NAMES) == COUNTRY_CODES
    assert countries.WITHOUT_POSTAL_CODES <= COUNTRY_CODES


def test_a_card_number_is_in_no_representation() -> None:
    assert UNPUBLISHED not in repr(read(number=UNPUBLISHED))
