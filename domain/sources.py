"""Where a card is added from (interface, `addCard`)."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from domain.errors import InvalidSource


class Source(IntEnum):
    """The place a card is added from."""

    WEB_STORE = 1
    MOBILE = 5


DEFAULT_SOURCE: Final = Source.WEB_STORE

_AS_SENT: Final[Mapping[object, Source]] = {
    sent: each for each in Source for sent in (each.value, str(each.value))
}


def parse_source(value: object) -> Source:
    """Parse a source as a client sent it.

    Raises InvalidSource for anything but 1 and 5, as integers or strings; `true` and `1.0` too.
    """
    if type(value) not in (int, str) or value not in _AS_SENT:
        raise InvalidSource
    return _AS_SENT[value]
