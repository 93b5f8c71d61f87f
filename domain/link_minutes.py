"""How many minutes the link of a session may wait to be opened (interface, `addCard`)."""

from __future__ import annotations

from typing import Final

from domain.errors import InvalidField

MIN_LINK_MINUTES: Final = 15
MAX_LINK_MINUTES: Final = 30 * 24 * 60


def parse_link_minutes(value: object, *, at_most: int) -> int | None:
    """Parse link_minutes as a client sent it; None means that it is not given.

    Raises InvalidField for anything but an integer from 15 to `at_most`; `true`, `60.0` and `"60"`
    too.
    """
    if value is None:
        return None
    if type(value) is not int or not MIN_LINK_MINUTES <= value <= at_most:
        raise InvalidField("link_minutes", f"a whole number from {MIN_LINK_MINUTES} to {at_most}")
    return value
