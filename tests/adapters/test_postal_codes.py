from __future__ import annotations

import pytest

from adapters.postal_codes import PostalCodeFormats
from domain.billing import COUNTRY_CODES

FORMATS = PostalCodeFormats()


def test_most_countries_have_postal_codes() -> None:
    assert all(map(FORMATS.are_used_in, ["US", "GB", "DE", "JP", "BR", "IN"]))
    assert sum(map(FORMATS.are_used_in, COUNTRY_CODES)) > 150


@pytest.mark.parametrize("country_code", ["AE", "HK", "QA", "BQ", "ZW"])
def test_some_countries_have_none(country_code: str) -> None:
    assert not FORMATS.are_used_in(country_code)
    assert not FORMATS.has_format(country_code, "12345")


@pytest.mark.parametrize(
    ("country_code", "zipcode", "has_format"),
    [
        ("US", "00000", True),  # though it does not exist
        ("CA", "k1a 0b1", True),
        ("GB", "SW1A 1AA", True),
        ("US", "0000", False),
        ("US", "98101 ", False),
        ("US", "\u0669\u0668\u0661\u0660\u0661", False),
        ("CA", "12345", False),
    ],
)
def test_a_postal_code_has_the_format_of_its_country(
    country_code: str, zipcode: str, has_format: bool
) -> None:
    assert FORMATS.has_format(country_code, zipcode) is has_format
