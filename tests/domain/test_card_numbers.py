from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from random import Random

import pytest

from domain.card_numbers import holds_card_number, passes_luhn
from tests.fuzzing import TIMES

NUMBERS = {
    "Visa": "4111111111111111",
    "Visa, 13 digits": "4222222222222",
    "Visa, 19 digits": "4000000000000000006",
    "Mastercard": "5555555555554444",
    "Mastercard, second range": "2223003122003222",
    "American Express": "378282246310005",
    "Diners Club": "30569309025904",
    "Diners Club, 36": "36227206271667",
    "JCB": "3530111333300000",
    "Discover": "6011111111111117",
    "Dankort": "5019717010103742",
    "Maestro, 19 digits": "6759411100000000006",
    "RuPay": "8171999927660000",
    "UnionPay": "6200000000000005",
    "UnionPay, 19 digits": "6205500000000000004",
    "Mir": "2200000000000004",
    "Troy": "9792000000000003",
}


@pytest.mark.parametrize("number", [pytest.param(NUMBERS[name], id=name) for name in NUMBERS])
def test_a_card_number_of_each_card_scheme_is_detected_in_text(number: str) -> None:
    assert passes_luhn(number)
    for text in (number, f"card {number}, 12/30", f"no{number}", f"{number} 123"):
        assert holds_card_number(text), text
    wrong = number[:-1] + str((int(number[-1]) + 1) % 10)
    assert not holds_card_number(wrong)
    assert not holds_card_number(f"{number}1234")


@pytest.mark.parametrize(
    "text",
    [
        "4111 1111 1111 1111",
        "4111-1111-1111-1111",
        "4111\u20111111\u20131111\u22121111",
        "4111\u00a01111\u20071111\u202f1111",
        "3782 822463 10005",
        "3056 930902 5904",
        "6205 5000 0000 0000 004",
        "620550 0000000000004",
        "12 4111 1111 1111 1111 123",
        "\u2074\u00b2\u2074\u00b2" * 4,
        "\uff14\uff12\uff14\uff12" * 4,
        "\u0664\u0662\u0664\u0662" * 4,
        "\u2463\u2461\u2463\u2461" * 4,
        "4242\u200b4242\u200b4242\u200b4242",
    ],
)
def test_a_card_number_is_detected_in_any_usual_spelling(text: str) -> None:
    assert holds_card_number(text)


@pytest.mark.parametrize(
    "text",
    [
        "4111 Main Street 1111",
        "4111.1111.1111.1111",
        "41 11 11 11 11 11 11 11",
        "42222222226",
        "GTIN 5901234123457",
        "GTIN 4006381333924",
        "702-1234567-1234567",
        "42424242-4242-4242-4242-424242424242",
        "4242424242424242424242424242424a",
    ],
)
def test_digits_other_than_card_numbers_are_not_mistaken_for_a_card_number(text: str) -> None:
    assert not holds_card_number(text)


ORDER_NUMBERS: dict[str, Callable[[Random], str]] = {
    "UUID": lambda random: str(uuid.UUID(int=random.getrandbits(128), version=4)),
    "UUID without dashes": lambda random: uuid.UUID(int=random.getrandbits(128), version=4).hex,
    "time in milliseconds": lambda random: (
        f"order-{1_600_000_000_000 + random.randrange(4 * 10**11)}"
    ),
    "time in nanoseconds": lambda random: str(16 * 10**17 + random.randrange(4 * 10**17)),
    "time of 14 digits": lambda random: time.strftime(
        "%Y%m%d%H%M%S", time.gmtime(random.randrange(1_600_000_000, 2_000_000_000))
    ),
    "12 digits": lambda random: str(random.randrange(10**11, 10**12)),
    "18 digits": lambda random: str(random.randrange(10**17, 10**18)),
    "date and counter": lambda random: (
        f"20{random.randrange(20, 40)}-{random.randrange(1, 13):02}-{random.randrange(10**8):08}"
    ),
    "3, 7 and 7 digits": lambda random: (
        f"{random.randrange(10**3):03}-{random.randrange(10**7):07}-{random.randrange(10**7):07}"
    ),
    "object id": lambda random: (
        f"{random.randrange(0x60000000, 0x70000000):08x}{random.getrandbits(64):016x}"
    ),
    "GTIN-13": lambda random: with_check_digit(f"{random.randrange(10**12):012}"),
}


def with_check_digit(digits: str) -> str:
    """Return 12 digits with the check digit of a GTIN-13."""
    total = sum(map(int, digits[0::2])) + 3 * sum(map(int, digits[1::2]))
    return f"{digits}{-total % 10}"


@pytest.mark.fuzz
@pytest.mark.parametrize("form", ORDER_NUMBERS)
def test_at_most_1_in_100000_order_numbers_is_mistaken_for_a_card_number(form: str) -> None:
    random, draw, numbers = Random(form), ORDER_NUMBERS[form], 10_000 * TIMES
    assert sum(holds_card_number(draw(random)) for _ in range(numbers)) <= numbers / 100_000
