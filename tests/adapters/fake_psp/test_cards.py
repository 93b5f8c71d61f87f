from __future__ import annotations

import pytest

from adapters.fake_psp import countries
from adapters.fake_psp.cards import UNCLEAN, CardEntry, EntryRefused, read_entry, repeatable
from adapters.psp_suite.clock import START
from domain.billing import COUNTRY_CODES
from tests.adapters.fake_psp.conftest import ADDRESS, CARD, GOOD, UNPUBLISHED


def read(*, avs: bool = False, **typed: str) -> CardEntry:
    return read_entry({**CARD, **ADDRESS, **typed}, avs=avs, now=START)


def errors(*, avs: bool = False, **typed: str) -> dict[str, str]:
    with pytest.raises(EntryRefused) as refused:
        read(avs=avs, **typed)
    return dict(refused.value.errors)


@pytest.mark.parametrize(
    "expiry",
    [
        *("08/30", "08 / 30", "8/30", "8 30", "08-30", "08.30", "0830", "830", " 08/30 "),
        *("08/2030", "8 / 2030", "08 30", "082030", "2030-08", "08\u00a0/\u00a030"),
        *("\u0660\u0668/\u0663\u0660", "\uff10\uff18\uff0f\uff13\uff10", "08\u201330"),
    ],
)
def test_the_card_form_accepts_an_expiry_date_in_many_formats(expiry: str) -> None:
    entry = read(expiry=expiry)
    assert (entry.expiry_month, entry.expiry_year) == (8, 2030)
    assert entry.repeatable["expiry"] == expiry
    # A card is valid until the end of its month.
    assert read(expiry="11/26").expiry_month == 11


@pytest.mark.parametrize(
    "number",
    [
        *("4242-4242-4242-4242", "  4242 42424242 4242 ", "4242\u00a04242\u00a04242\u00a04242"),
        *("4242\u20134242\u20144242\u22124242", "\u200e4242424242424242\u200b", "4242\u30fc" * 4),
        *("\u0664\u0662" * 8, "\uff14\uff12" * 8, "\U0001e954\U0001e952" * 8),
    ],
)
def test_the_card_form_accepts_a_card_number_with_separators(number: str) -> None:
    assert read(number=number).number == GOOD


@pytest.mark.parametrize(
    ("field", "fault", "texts"),
    [
        ("number", "empty", ["", "   "]),
        ("number", "form", ["42424242", "4" * 20, "4242 4242 4242 424O"]),
        ("number", "form", [f"{GOOD}\x00", f"{GOOD}\n", "\ud800424242424242424"]),
        ("number", "brand", ["378282246310005", "6011111111111117", "5018000000000009"]),
        ("number", "brand", ["2220999999999999", "2721000000000000", "5000000000000000"]),
        ("number", "slip", ["2221000000000000", "2720999999999999", "5100000000000000"]),
        ("number", "slip", ["4242424242424241", "4242424242424224"]),
        ("expiry", "empty", [""]),
        ("expiry", "form", ["123", "12/3", "12/030", "12.30.1", "2030-8-01", "1/2/30"]),
        ("expiry", "form", ["12/30\x00", "12/30\n", "\udc8012/30", "12 / 0000"]),
        ("expiry", "month", ["13/30", "00/30"]),
        ("expiry", "expired", ["10/26", "12/00", "12 / 1999"]),
        ("expiry", "far", ["12 / 2077", "12/99"]),
        ("cvc", "empty", [""]),
        ("cvc", "form", ["12", "1234", "12a"]),
        ("zipcode", "form", ["\u0661-\u0623"]),
        ("country_code", "unknown", ["XX"]),
    ],
)
def test_the_card_form_refuses_an_invalid_field(field: str, fault: str, texts: list[str]) -> None:
    for text in texts:
        assert errors(avs=True, **{field: text}) == {field: fault}


def test_the_card_form_does_not_show_a_refused_card_number_again() -> None:
    numbers = repeatable({"number": GOOD, "cvc": "123", "city": f"Seattle {GOOD}", "expiry": GOOD})
    assert set(numbers.values()) == {""}


def test_the_card_form_does_not_show_overlong_text_again() -> None:
    assert repeatable({"address": "x" * 200})["address"] == "x" * 200
    too_long = repeatable({"address": "x" * 201, "expiry": " " * 50 + "08/30"})
    assert too_long["address"] == too_long["expiry"] == ""


def test_the_billing_address_is_ignored_if_avs_is_off() -> None:
    assert read(avs=False, address="", zipcode="\x00", country_code="XX").number == GOOD


def test_a_billing_address_may_omit_the_postal_code_only_in_a_country_without_postal_codes() -> (
    None
):
    assert read(avs=True, zipcode="", country_code="AE").zipcode == ""
    assert read(avs=True, city="", state="").zipcode == "98101"
    assert errors(avs=True, zipcode="") == {"zipcode": "empty"}


@pytest.mark.parametrize("bad", ["a\nb", "\x1b[31m", "a\ud800", "a\u2028b", "9" * 500])
def test_a_billing_field_with_unsafe_characters_is_refused(bad: str) -> None:
    assert errors(avs=True, **dict.fromkeys(ADDRESS, bad)) == dict.fromkeys(ADDRESS, UNCLEAN)


def test_every_country_code_has_a_name_in_the_card_form() -> None:
    assert set(countries.NAMES) == COUNTRY_CODES
    assert countries.WITHOUT_POSTAL_CODES <= COUNTRY_CODES


def test_the_repr_of_a_card_entry_does_not_show_the_card_number() -> None:
    assert UNPUBLISHED not in repr(read(number=UNPUBLISHED))
