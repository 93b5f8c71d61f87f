"""Recognising card numbers, so that none is kept or shown by mistake."""

from __future__ import annotations

import re
from collections.abc import Iterator

# People write them in groups, and other numbers beside them: digits of any script, and what is
# neither letter nor digit between them.
_GROUPED = re.compile(r"\d+(?:[\W_]+\d+)*")
_GROUP = re.compile(r"\d+")
_LENGTHS = range(12, 20)
"""How many digits a number may have (ISO/IEC 7812-1)."""
_USUAL_LENGTH = 16


def passes_luhn(digits: str) -> bool:
    """Tell whether the last digit checks the others (ISO/IEC 7812-1, annex B)."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(int(digit) for digit in digits[-1::-2])) % 10 == 0


def holds_card_number(text: str) -> bool:
    """Tell whether 12 to 19 digits in a row, in one group or several, could be a card's number."""
    return any(
        passes_luhn(digits)
        for grouped in _GROUPED.findall(text)
        for digits in _rows_of(_GROUP.findall(grouped))
    )


def _rows_of(groups: list[str]) -> Iterator[str]:
    """Give every row of digits that could be a card's number.

    That is every row of whole groups, and of a group that is longer than most numbers, every part:
    a security code or a date may follow without a gap.
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
