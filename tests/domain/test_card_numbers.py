from __future__ import annotations

import pytest

from domain.card_numbers import holds_card_number


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("4222222222222", id="13 digits"),
        pytest.param("4111 1111 1111 1111", id="in groups"),
        pytest.param("4222222222222 5641", id="beside another group"),
        pytest.param("42222222222225641", id="at the start of a longer group"),
        pytest.param("22144222222222222", id="at its end"),
        pytest.param("4334222222222222564", id="in its middle, 13 digits"),
        pytest.param("37154111111111111111894", id="in its middle, 16 digits"),
    ],
)
def test_a_card_number_is_found(text: str) -> None:
    assert holds_card_number(text)


@pytest.mark.parametrize(
    "text",
    [
        pytest.param("4111111111111112", id="its last digit does not check the others"),
        pytest.param("422222222222227", id="a part of a group that is no longer than numbers are"),
        pytest.param("4222222222222274", id="a part of a group of the usual length"),
        pytest.param("74264784271777210", id="a longer group, no part of which is one"),
        pytest.param("4111 Main Street 1111", id="letters between"),
        pytest.param("42222222226", id="too short"),
    ],
)
def test_other_digits_are_no_card_number(text: str) -> None:
    assert not holds_card_number(text)
