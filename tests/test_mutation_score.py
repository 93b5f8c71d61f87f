from __future__ import annotations

from tests.mutation_score import judge, place_of

PAGE = """
| File | Function | Left | Change | Why |
|---|---|---|---|---|
| `domain/billing.py` | `_text` | 1 | `None` | It makes no difference. |
"""
KILLED = ["    domain.guests.x_parse_guest_id__mutmut_1: killed\n"] * 9
LISTED = "    domain.billing.x__text__mutmut_2: survived\n"


def test_a_mutant_is_found_by_its_name() -> None:
    assert place_of("domain.billing.x__text__mutmut_2") == ("domain/billing.py", "_text")
    assert place_of("domain.add_card.x\u01c1AddCard\u01c1__call____mutmut_31") == (
        "domain/add_card.py",
        "AddCard.__call__",
    )


def test_what_the_page_lists_may_be_left() -> None:
    said, is_well = judge([*KILLED, LISTED], PAGE)

    assert is_well
    assert said[-1] == "9 of 10 mutants are killed: 90.0% (at least 90%)"


def test_too_few_that_are_killed_are_a_failure() -> None:
    said, is_well = judge([*KILLED[1:], LISTED], PAGE)

    assert not is_well
    assert "88.9%" in said[-1]
    assert not judge([], "")[1]


def test_what_the_page_does_not_list_is_a_failure() -> None:
    said, is_well = judge([*KILLED, *KILLED, LISTED, LISTED], PAGE)

    assert not is_well
    assert "domain/billing.py: _text: 2 left, 1 on the page" in said


def test_a_page_that_lists_what_is_killed_is_a_failure() -> None:
    said, is_well = judge(KILLED, PAGE)

    assert not is_well
    assert "domain/billing.py: _text: 0 left, 1 on the page" in said
