from __future__ import annotations

import pytest

from domain.errors import PageParameterInvalid, TooManyItems
from domain.pagination import PageRequest


@pytest.mark.parametrize("number", ["1", "2", "007", "9" * 24, "9" * 4000])
def test_a_page_number_may_be_any_positive_decimal_number(number: str) -> None:
    assert PageRequest.parse(pages=[number], sizes=[]).page == int(number)


@pytest.mark.parametrize(
    "number",
    [
        *("", "0", "-1", "+5", " 5", "5\n", "1_000", "1.0", "1e3", "x", "0x1", "0" * 9),
        *("\u0663", "\u0966", "\u00b2", "\uff11"),
    ],
)
def test_a_malformed_page_number_is_refused(number: str) -> None:
    with pytest.raises(PageParameterInvalid, match=r"^page must"):
        PageRequest.parse(pages=[number], sizes=[])
    with pytest.raises(PageParameterInvalid, match=r"^size must"):
        PageRequest.parse(pages=[], sizes=[number])


def test_a_page_number_given_twice_is_refused() -> None:
    with pytest.raises(PageParameterInvalid):
        PageRequest.parse(pages=["1", "1"], sizes=[])


def test_a_page_of_results_has_10_items_by_default() -> None:
    assert PageRequest.parse(pages=[], sizes=[]) == PageRequest(page=1, size=10)


def test_a_page_of_results_has_at_most_100_items() -> None:
    assert PageRequest.parse(pages=[], sizes=["100"]).size == 100
    for size in ("101", "9" * 24):
        with pytest.raises(TooManyItems):
            PageRequest.parse(pages=[], sizes=[size])


def test_consecutive_pages_of_results_contain_every_item_once() -> None:
    assert [PageRequest(page=page, size=7).before for page in (1, 2, 3)] == [0, 7, 14]
