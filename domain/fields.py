"""Parse and check fields from outside, such as a cell of a file or an option of a command."""

from __future__ import annotations

import unicodedata
from typing import Final

from domain.card_numbers import holds_card_number
from domain.errors import InvalidField
from domain.identifiers import plain_uuid

NO_CARD_NUMBER: Final = "text without a card number"


def parse_uuid(field: str, value: object) -> str:
    """Return a UUID in lower case. Raises InvalidField unless it is in 36-character form."""
    uuid = plain_uuid(value)
    if uuid is None:
        raise InvalidField(field, "a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3")
    return uuid


def parse_line(field: str, value: object, *, max_length: int) -> str:
    """Return a line of text unchanged.

    Raises InvalidField if the text is missing, blank or too long, or if it contains control
    characters or line breaks.
    """
    if (
        isinstance(value, str)
        and len(value) <= max_length
        and is_visible(value)
        and is_clean(value)
    ):
        return value
    raise invalid_line(field, max_length=max_length)


def invalid_line(field: str, *, max_length: int) -> InvalidField:
    """Return the error for a text that `parse_line` does not accept."""
    return InvalidField(
        field,
        f"1 to {max_length} characters, not blank, without control characters and line breaks",
    )


def without_card_number(field: str, value: str) -> str:
    """Return text unchanged. Raises InvalidField if it contains a card number."""
    if holds_card_number(value):
        raise InvalidField(field, NO_CARD_NUMBER)
    return value


# Control characters, lone surrogates, and the two separators that some terminals and log readers
# treat as the end of a line. Joiners and direction marks (Cf) are allowed, because people's names
# contain them. Characters that override the direction of the following text (Unicode Standard Annex
# 9) are not allowed.
_REFUSED_CATEGORIES = frozenset({"Cc", "Cs", "Zl", "Zp"})
_DIRECTION_OVERRIDES = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


# Letters and symbols without a visible shape: Hangul fillers, and the Braille pattern without a
# dot.
_INVISIBLE = frozenset("\u115f\u1160\u3164\uffa0\u2800")


def is_visible(text: str) -> bool:
    """Return whether `text` contains a visible character."""
    return any(
        unicodedata.category(character)[0] in "LNPS" and character not in _INVISIBLE
        for character in text
    )


def is_clean(text: str) -> bool:
    """Return whether `text` contains no control characters, line breaks or lone surrogates."""
    return text.isprintable() or not any(
        unicodedata.category(character) in _REFUSED_CATEGORIES or character in _DIRECTION_OVERRIDES
        for character in text
    )
