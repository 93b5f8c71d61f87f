"""Where a card is added from (interface, section 2.1)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from domain.errors import InvalidSource


class Source(IntEnum):
    """The place a card is added from."""

    WEB_STORE = 1
    MOBILE = 5


DEFAULT_SOURCE: Final = Source.WEB_STORE


def parse_source(value: object) -> Source:
    """Parse a source as a client sent it.

    Raises InvalidSource for anything but the integers 1 and 5; `true`, `1.0` and `"1"` too.
    """
    if type(value) is not int or value not in tuple(Source):
        raise InvalidSource
    return Source(value)
