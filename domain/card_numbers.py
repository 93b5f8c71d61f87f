"""Recognising card numbers, so that none is kept or shown by mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator

# People write card numbers in groups, and other numbers beside them. A group is digits of any
# script; between groups is anything but letters and digits. Fewer than 12 digits are no card number.
_GROUPED = re.compile(r"\d(?:[\W_]*\d){11,}")
_GROUP = re.compile(r"\d+")
_LENGTHS = range(12, 20)
"""How many digits a number may have (ISO/IEC 7812-1)."""
_USUAL_LENGTH = 16
# American Express, and Diners Club with 14 digits. In the countries whose codes these begin with
# (30, 34, 36 to 39), phone numbers are shorter.
_SHORT = re.compile(r"3[47][0-9]{13}|3(?:[689][0-9]{2}|0[0-5][0-9]|095)[0-9]{10}")


def passes_luhn(digits: str) -> bool:
    """Return whether the last digit is the right check digit (ISO/IEC 7812-1, annex B)."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(int(digit) for digit in digits[-1::-2])) % 10 == 0


def holds_card_number(text: str) -> bool:
    """Return whether 12 to 19 consecutive digits, in one group or several, could be a card number."""
    return any(
        passes_luhn(digits)
        for grouped in _GROUPED.findall(text)
        for digits in _rows_of(_GROUP.findall(grouped))
    )


def is_short_card_number(digits: str) -> bool:
    """Return whether these are a card number that has at most 15 digits, as phone numbers have.

    One phone number in ten has a valid check digit, so the issuer's digits count too.
    """
    return _SHORT.fullmatch(digits) is not None and passes_luhn(digits)


def _rows_of(groups: list[str]) -> Iterator[str]:
    """Return every sequence of digits that could be a card number.

    That is each sequence of whole groups, and each part of a group that is longer than most card
    numbers: a security code or a date may follow the number without a gap.
    """
    for start in range(len(groups)):
        row = ""
        for group in groups[start:]:
            row += group
            if len(row) in _LENGTHS:
                yield row
            if len(row) >= _LENGTHS.stop:
                break
    for group in groups:
        if len(group) > _USUAL_LENGTH:
            for length in _LENGTHS[1:]:
                starts = range(len(group) - length + 1)
                yield from (group[start : start + length] for start in starts)
