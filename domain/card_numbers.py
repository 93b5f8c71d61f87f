"""Recognize card numbers, so that no card number is stored or shown by mistake."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

_SCHEMES: Final = (
    ("Visa", "4", (13, 16, 19)),
    ("Mastercard", "5[1-5]|222[1-9]|22[3-9]|2[3-6]|27[01]|2720", (16,)),
    ("American Express", "3[47]", (15,)),
    ("Diners Club", "30[0-5]|3095|3[689]", (14,)),
    ("Diners Club", "3[689]", (16,)),
    ("JCB", "352[89]|35[3-8]", (16, 19)),
    ("Discover, Elo, Maestro, RuPay, UnionPay", "50|5[678]|6|8[12]", (16, 19)),
    ("Mir", "220[0-4]", (16,)),
    ("Troy", "9792", (16,)),
)
"""The first digits of each scheme's numbers, and the lengths that are issued.

Some schemes once allowed 12 to 19 digits. Lengths that are rare today are left out, because many
order numbers have them by chance.
"""

_NUMBER: Final = re.compile(
    "|".join(
        rf"(?=\d{{{length}}}$)(?:{prefix})\d*"
        for _, prefix, lengths in _SCHEMES
        for length in lengths
    )
)
# American Express, and Diners Club with 14 digits. Phone numbers of the countries with these codes
# (30, 34, 36 to 39) are shorter.
_SHORT = re.compile(r"3[47][0-9]{13}|3(?:[689][0-9]{2}|0[0-5][0-9]|095)[0-9]{10}")

_PRINTED: Final = (
    (4, 4, 4, 4),
    (4, 6, 5),
    (4, 6, 4),
    (4, 4, 4, 4, 3),
    (6, 13),
    (4, 3, 3, 3),
)
"""The number of digits in each group, as printed on cards."""

# One blank or dash stands between two groups.
_GROUPS = re.compile(r"\d+(?:[\s\-\u2010-\u2015\u2212]\d+)*")
_GTIN_LENGTH = 13

# A UUID, or a hexadecimal number with at least one letter and the length of a common hash or id.
_IDENTIFIER = re.compile(
    r"(?<![^\W_])(?:[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?=\d*[a-f])[0-9a-f]{24,})(?![^\W_])",
    re.IGNORECASE,
)


def passes_luhn(digits: str) -> bool:
    """Return whether the last digit is the correct check digit (ISO/IEC 7812-1, annex B)."""
    doubled = (sum(divmod(2 * int(digit), 10)) for digit in digits[-2::-2])
    return (sum(doubled) + sum(int(digit) for digit in digits[-1::-2])) % 10 == 0


def holds_card_number(text: str) -> bool:
    """Return whether the text contains a number that looks like a card number.

    Such a number has a card scheme's first digits and length, and a correct check digit. Its digits
    are contiguous, or grouped as on a card with one blank or dash between groups. They may be
    digits of any script, and letters or other numbers may surround them.

    UUIDs, long hexadecimal numbers and article numbers (GTIN-13) are not taken for card numbers.
    """
    if not any(character.isnumeric() for character in text):
        return False
    plain = _IDENTIFIER.sub(" | ", _plain(text))
    return any(
        _is_card_number(number)
        for groups in _GROUPS.findall(plain)
        for number in _numbers_in(re.findall(r"\d+", groups))
    )


def joined_texts_hold_card_number(*texts: str) -> bool:
    """Return whether texts form a card number when they are shown next to each other."""
    return any(holds_card_number(separator.join(texts)) for separator in (" ", ""))


def is_short_card_number(digits: str) -> bool:
    """Return whether the digits are a card number with 14 or 15 digits, and not a phone number.

    One in ten phone numbers has a valid check digit by chance. The digits must therefore also begin
    like an American Express or Diners Club number. No phone number that begins so is as long.
    """
    return _SHORT.fullmatch(digits) is not None and passes_luhn(digits)


def _plain(text: str) -> str:
    """Replace digits of other scripts with ASCII digits, and remove invisible characters."""
    if text.isascii():
        return text
    return "".join(
        str(unicodedata.decimal(character, character))
        for character in unicodedata.normalize("NFKC", text)
        if unicodedata.category(character) != "Cf"
    )


def _numbers_in(groups: list[str]) -> Iterator[str]:
    """Yield each group, and each sequence of groups with the lengths printed on a card, joined."""
    yield from groups
    for start in range(len(groups)):
        for lengths in _PRINTED:
            printed = groups[start : start + len(lengths)]
            if tuple(map(len, printed)) == lengths:
                yield "".join(printed)


def _is_card_number(digits: str) -> bool:
    if not _NUMBER.fullmatch(digits) or not passes_luhn(digits):
        return False
    return len(digits) != _GTIN_LENGTH or not _is_article_number(digits)


def _is_article_number(digits: str) -> bool:
    """Return whether the digits are a GTIN-13 by their check digit (GS1 General Specifications, 7.9)."""
    return (sum(map(int, digits[0::2])) + 3 * sum(map(int, digits[1::2]))) % 10 == 0
