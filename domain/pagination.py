"""Pagination of lists."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from domain.errors import PageParameterInvalid, TooManyItems

DEFAULT_PAGE: Final = 1
DEFAULT_SIZE: Final = 10
MAX_SIZE: Final = 100
ALL: Final = 2**31
"""The size of a page that contains all items. The API does not accept it."""
MAX_DIGITS: Final = 4_000
"""The maximum number of digits of `page` and `size`. Python refuses to parse numbers of more than
4,300 digits.
"""

_DIGITS = re.compile(r"[0-9]+")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """The requested page of a list: `page` is 1 or more, `size` is 1 to 100."""

    page: int = DEFAULT_PAGE
    size: int = DEFAULT_SIZE

    @classmethod
    def parse(cls, *, pages: Sequence[str], sizes: Sequence[str]) -> PageRequest:
        """Parse the values of the query parameters `page` and `size`. No value means the default.

        Raises TooManyItems if the size is over 100. Raises PageParameterInvalid for a value that is
        not a plain decimal number of at least 1, and if a parameter is repeated.
        """
        page = _parse_number("page", pages, DEFAULT_PAGE)
        size = _parse_number("size", sizes, DEFAULT_SIZE)
        if size > MAX_SIZE:
            raise TooManyItems
        return cls(page=page, size=size)

    @property
    def before(self) -> int:
        """The number of items before this page."""
        return (self.page - 1) * self.size


def _parse_number(parameter: str, given: Sequence[str], default: int) -> int:
    if not given:
        return default
    text = given[0]
    if len(given) > 1 or len(text) > MAX_DIGITS or not _DIGITS.fullmatch(text) or int(text) < 1:
        raise PageParameterInvalid(parameter)
    return int(text)


@dataclass(frozen=True, slots=True, kw_only=True)
class Page(Generic[Item]):
    """One page of a list, and the number of items on all its pages."""

    items: tuple[Item, ...]
    total: int
    request: PageRequest
