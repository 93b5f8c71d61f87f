from __future__ import annotations

import pytest

from adapters.postal_codes import PostalCodeFormats
from domain.billing import COUNTRY_CODES

FORMATS = PostalCodeFormats()


@pytest.mark.parametrize("country_code", ["US", "GB", "DE", "JP", "BR", "IN"])
def test_most_countries_have_postal_codes(country_code: str) -> None:
    assert FORMATS.are_used_in(country_code)


@pytest.mark.parametrize("country_code", ["AE", "HK", "QA", "BQ", "ZW"])
def test_some_countries_have_none(country_code: str) -> None:
    assert not FORMATS.are_used_in(country_code)
    assert not FORMATS.has_format(country_code, "12345")


@pytest.mark.parametrize(
    ("country_code", "zipcode"),
    [
        ("US", "00000"),
        ("CA", "k1a 0b1"),
        ("GB", "SW1A 1AA"),
        ("JP", "100-0001"),
        ("BR", "01310-100"),
    ],
)
def test_a_format_does_not_ask_whether_the_code_exists(country_code: str, zipcode: str) -> None:
    assert FORMATS.has_format(country_code, zipcode)


@pytest.mark.parametrize(
    ("country_code", "zipcode"),
    [("US", "0000"), ("US", "98101 "), ("US", "\u0669\u0668\u0661\u0660\u0661"), ("CA", "12345")],
)
def test_another_format_is_noticed(country_code: str, zipcode: str) -> None:
    assert not FORMATS.has_format(country_code, zipcode)


def test_every_country_of_the_world_can_be_asked_about() -> None:
    assert sum(map(FORMATS.are_used_in, COUNTRY_CODES)) > 150
