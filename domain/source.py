"""The `source` of an add-card request: the website or the app of the client."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from domain.errors import InvalidSource


class Source(IntEnum):
    """The kinds of software that may send an add-card request."""

    WEB_STORE = 1
    MOBILE = 5


DEFAULT_SOURCE: Final = Source.WEB_STORE


def parse_source(value: object) -> Source:
    """Parse the source that a client sent.

    1 and 5 are accepted, as integers or strings. Raises InvalidSource for anything else, including
    `true` and `1.0`.
    """
    if type(value) in (int, str):
        for source in Source:
            if value in (source.value, str(source.value)):
                return source
    raise InvalidSource
