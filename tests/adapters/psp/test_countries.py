from __future__ import annotations

import re

import pytest

from adapters.psp.countries import ALPHA_3, NUMERIC
from domain.billing import COUNTRY_CODES


@pytest.mark.parametrize(
    ("country", "alpha_3", "numeric"),
    [("ES", "ESP", "724"), ("AF", "AFG", "004"), ("ZW", "ZWE", "716")],
)
def test_each_country_has_an_alpha_3_code_and_a_numeric_code(
    country: str, alpha_3: str, numeric: str
) -> None:
    assert (ALPHA_3[country], NUMERIC[country]) == (alpha_3, numeric)


def test_every_country_that_the_api_accepts_has_unique_codes() -> None:
    assert ALPHA_3.keys() == NUMERIC.keys() == COUNTRY_CODES
    assert len(set(ALPHA_3.values())) == len(set(NUMERIC.values())) == 250
    assert all(re.fullmatch(r"[A-Z]{3}", code) for code in ALPHA_3.values())
    assert all(re.fullmatch(r"[0-9]{3}", code) for code in NUMERIC.values())
