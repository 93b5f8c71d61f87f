from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from domain.errors import PageParameterInvalid, TooManyItems
from domain.pagination import PageRequest


@pytest.mark.parametrize("number", ["1", "2", "007", "9" * 24, "9" * 4000])
def test_a_page_is_any_number_in_decimal_digits(number: str) -> None:
    assert PageRequest.parse(pages=[number], sizes=[]).page == int(number)


@pytest.mark.parametrize(
    "number",
    ["", "0", "-1", "+5", " 5", "1_000", "1.0", "1e3", "\u0663", "\u0966", "x", "0x1", "0" * 9],
)
def test_other_spellings_of_a_number_are_refused(number: str) -> None:
    with pytest.raises(PageParameterInvalid, match=r"^page must"):
        PageRequest.parse(pages=[number], sizes=[])
    with pytest.raises(PageParameterInvalid, match=r"^size must"):
        PageRequest.parse(pages=[], sizes=[number])


def test_a_number_given_twice_is_refused() -> None:
    with pytest.raises(PageParameterInvalid):
        PageRequest.parse(pages=["1", "1"], sizes=[])


def test_a_page_has_ten_items_unless_said_otherwise() -> None:
    assert PageRequest.parse(pages=[], sizes=[]) == PageRequest(page=1, size=10)


def test_a_page_has_a_hundred_items_at_most() -> None:
    assert PageRequest.parse(pages=[], sizes=["100"]).size == 100
    for size in ("101", "9" * 24):
        with pytest.raises(TooManyItems):
            PageRequest.parse(pages=[], sizes=[size])


NUMBERS = st.text(st.sampled_from("0123456789+-_ .ex\u0663\u0966\u00b2\uff11\n\x00"), max_size=8)


@given(NUMBERS | st.integers().map(str) | st.text())
def test_only_decimal_digits_are_read_as_a_number(text: str) -> None:
    is_number = text.isascii() and text.isdecimal() and int(text) >= 1
    for parameter in ("pages", "sizes"):
        given: dict[str, list[str]] = {"pages": [], "sizes": [], parameter: [text]}
        try:
            read = PageRequest.parse(pages=given["pages"], sizes=given["sizes"])
        except PageParameterInvalid:
            assert not is_number
        except TooManyItems:
            assert int(text) > 100
        else:
            assert is_number
            assert int(text) == (read.page if parameter == "pages" else read.size)


@given(page=st.integers(min_value=1), size=st.integers(min_value=1, max_value=100))
def test_pages_follow_each_other_without_a_gap(page: int, size: int) -> None:
    this = PageRequest(page=page, size=size)

    assert PageRequest(page=page + 1, size=size).before == this.before + size
