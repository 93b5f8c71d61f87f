"""Fields that come from outside, such as a cell of a file or an option of a command."""

from __future__ import annotations

from domain.card_numbers import holds_card_number
from domain.errors import InvalidField
from domain.identifiers import plain_uuid
from domain.text import is_clean


def parse_uuid(field: str, value: object) -> str:
    """Return a UUID in lower case. Raises InvalidField for any but the 36-character form."""
    uuid = plain_uuid(value)
    if uuid is None:
        raise InvalidField(field, "a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3")
    return uuid


def parse_line(field: str, value: object, *, max_length: int) -> str:
    """Return a line of text unchanged.

    Raises InvalidField when it is not text, blank, too long, or has control characters or line
    breaks.
    """
    if isinstance(value, str) and len(value) <= max_length and value.strip() and is_clean(value):
        return value
    raise InvalidField(
        field,
        f"1 to {max_length} characters, not blank, without control characters and line breaks",
    )


def without_card_number(field: str, value: str) -> str:
    """Return text unchanged. Raises InvalidField when it contains a card number."""
    if holds_card_number(value):
        raise InvalidField(field, "text without a card number")
    return value
