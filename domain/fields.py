"""Fields that come from outside, such as a cell of a file or an option of a command."""

from __future__ import annotations

from domain.identifiers import plain_uuid
from domain.text import is_clean


class InvalidField(ValueError):
    """A value does not have the form of its field.

    `field` is the name of the field. `expected` describes the form so that it can follow "expected"
    and "must be": "a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3". Neither contains the
    value, which may be a card number.
    """

    def __init__(self, field: str, expected: str) -> None:
        super().__init__(f"{field} must be {expected}")
        self.field = field
        self.expected = expected


def parse_uuid(field: str, value: object) -> str:
    """Return a UUID in lower case. Raises InvalidField for any but the 36-character form."""
    uuid = plain_uuid(value)
    if uuid is None:
        raise InvalidField(field, "a UUID such as 7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3")
    return uuid


def parse_line(field: str, value: object, *, max_length: int) -> str:
    """Return a line of text unchanged.

    Raises InvalidField when it is no text, blank, too long, or has control characters or line
    breaks.
    """
    if isinstance(value, str) and len(value) <= max_length and value.strip() and is_clean(value):
        return value
    raise InvalidField(
        field,
        f"1 to {max_length} characters, not blank, without control characters and line breaks",
    )
