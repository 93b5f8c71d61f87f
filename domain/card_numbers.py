"""Recognising card numbers, so that none is kept or shown by mistake."""

from __future__ import annotations

import re

# ISO/IEC 7812-1: up to 19 digits; people write them in groups.
_CANDIDATE = re.compile(r"(?<![0-9])[0-9](?:[ \-.]?[0-9]){11,18}(?![0-9])")


def passes_luhn(digits: str) -> bool:
    """Tell whether the last digit checks the others (ISO/IEC 7812-1, annex B)."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(int(digit) for digit in digits[-1::-2])) % 10 == 0


def holds_card_number(text: str) -> bool:
    """Tell whether 12 to 19 digits in a row, gaps aside, could be a card's number."""
    return any(passes_luhn(re.sub(r"[^0-9]", "", found[0])) for found in _CANDIDATE.finditer(text))
