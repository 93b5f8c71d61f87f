from __future__ import annotations

import pytest

from adapters.postal_codes import PostalCodeFormats

FORMATS = PostalCodeFormats()


@pytest.mark.parametrize("country_code", ["AE", "HK", "QA", "BQ", "ZW"])
def test_some_countries_have_no_postal_codes(country_code: str) -> None:
    assert not FORMATS.are_used_in(country_code)
    assert FORMATS.usual_form(country_code, "12345") is None


@pytest.mark.parametrize(
    ("country_code", "usual_form", "spellings"),
    [
        ("AD", "AD500", "AD500 AD-500 500"),
        ("AT", "1010", "1010 A-1010 AT-1010"),
        ("BR", "40301-110", "40301-110 40301110"),
        ("CA", "K1A 0B1", "k1a0b1 K1A-0B1"),
        ("CZ", "110 00", "11000 CZ-11000"),
        ("DE", "10115", "10115 D-10115 DE-10115"),
        ("GB", "SW1A 1AA", "SW1A1AA sw1a1aa"),
        ("GR", "151 24", "15124"),
        ("IE", "A65 F4E2", "a65f4e2 A65-F4E2"),
        ("IN", "110001", "110001 110-001"),
        (
            "JP",
            "154-0023",
            "1540023 \u3012154-0023 \uff11\uff15\uff14\u2212\uff10\uff10\uff12\uff13",
        ),
        ("KY", "KY1-1100", "KY1-1100 KY11100"),
        ("LT", "04340", "04340 LT-04340"),
        ("NL", "1234 AB", "1234ab NL-1234AB"),
        ("PL", "00-950", "00-950 00950 PL-00950"),
        ("SE", "11455", "11455 S-11455 SE-11455"),
        ("US", "98101", "98101"),
        ("US", "22162-1010", "22162-1010 221621010"),
    ],
)
def test_the_usual_spellings_of_a_postal_code_are_accepted(
    country_code: str, usual_form: str, spellings: str
) -> None:
    with_blanks = usual_form.replace("-", " "), f" {usual_form} ", usual_form.replace("-", " - ")
    for spelling in (*spellings.split(), *with_blanks):
        assert FORMATS.usual_form(country_code, spelling) == usual_form, spelling


@pytest.mark.parametrize(
    ("country_code", "written", "usual_form"),
    [
        ("US", "00000", "00000"),  # though it does not exist
        ("US", "22162 1010", "22162-1010"),
        ("IN", "110 001", "110001"),
        ("SE", "S-114 55", "11455"),
        ("NL", "NL-1234 AB", "1234 AB"),
        ("PL", "00\u2013950", "00-950"),
        ("CZ", "110\u00a000", "110 00"),
    ],
)
def test_a_postal_code_with_extra_spaces_is_accepted(
    country_code: str, written: str, usual_form: str
) -> None:
    assert FORMATS.usual_form(country_code, written) == usual_form


@pytest.mark.parametrize(
    ("country_code", "wrong"),
    [
        *(
            ("US", wrong)
            for wrong in ("0000", "981011", "98101-12", "98101-", "-98101", "9-8-1-0-1")
        ),
        *(("US", wrong) for wrong in ("98101--1234", "US", "\u0669\u0668\u0661\u0660\u0661")),
        *(("CA", wrong) for wrong in ("12345", "K1A 0B", "K1A 0BO", "A1A1A1A")),
        *(("GB", wrong) for wrong in ("12345", "SW1A", "QQ1 1AA")),
        *(("DE", wrong) for wrong in ("1011", "101155", "A-10115", "CH-10115", "D10115D")),
        *(("PL", wrong) for wrong in ("0095", "00-9500", "AB-CDE")),
        *(("PT", wrong) for wrong in ("1000", "1000-20", "10002050")),
        *(("JP", wrong) for wrong in ("154", "154-002", "15400233")),
        *(("NL", wrong) for wrong in ("1234", "0234 AB", "1234 SS")),
        *(("LV", wrong) for wrong in ("LT-1010", "101", "LV-10100")),
        *(("IM", wrong) for wrong in ("21AA", "IM2")),
        ("IN", "11000"),
        ("CH", "CH-80011"),
        ("IE", "12345"),
        ("SV", "9101"),
    ],
)
def test_a_postal_code_in_a_wrong_format_is_refused(country_code: str, wrong: str) -> None:
    assert FORMATS.usual_form(country_code, wrong) is None
