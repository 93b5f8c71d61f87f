"""Where a card is added from (interface, `addCard`)."""

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

    Raises InvalidSource for anything but 1 and 5, as integers or strings; `true` and `1.0` too.
    """
    if type(value) in (int, str):
        for source in Source:
            if value in (source.value, str(source.value)):
                return source
    raise InvalidSource
