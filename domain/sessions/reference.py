"""The client's own reference for a session, such as an order number."""

from __future__ import annotations

from typing import Final

from domain.errors import InvalidField
from domain.fields import parse_line, without_card_number

MAX_REFERENCE_LENGTH: Final = 100
EXPECTED_TEXT: Final = f"1 to {MAX_REFERENCE_LENGTH} characters in one line, without a card number"
EXPECTED_REFERENCE: Final = f"null, or {EXPECTED_TEXT}"


def parse_reference(value: object, expected: str = EXPECTED_REFERENCE) -> str | None:
    """Return a reference unchanged, or None for null. Raises InvalidField with the text `expected`.

    The reference does not have to be unique. It must not contain a card number.
    """
    if value is None:
        return None
    try:
        return without_card_number(
            "reference", parse_line("reference", value, max_length=MAX_REFERENCE_LENGTH)
        )
    except InvalidField:
        raise InvalidField("reference", expected) from None
