"""Pages of lists: which one is asked for, and what comes back (interface, section 4.2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from domain.errors import PageParameterInvalid, TooManyItems

DEFAULT_PAGE: Final = 1
DEFAULT_SIZE: Final = 10
MAX_SIZE: Final = 100
MAX_DIGITS: Final = 4_000
"""Python itself refuses to read numbers of more than 4,300 digits."""

_DIGITS = re.compile(r"[0-9]+")

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRequest:
    """Which page of a list is asked for: `page` from 1 without end, `size` from 1 to 100."""

    page: int = DEFAULT_PAGE
    size: int = DEFAULT_SIZE

    @classmethod
    def parse(cls, *, pages: Sequence[str], sizes: Sequence[str]) -> PageRequest:
        """Read every `page` and `size` that a query holds; none means the default.

        Raises TooManyItems for a size over 100, PageParameterInvalid for anything else that is
        no plain decimal number of at least 1, or is given twice.
        """
        page = _parse_number("page", pages, DEFAULT_PAGE)
        size = _parse_number("size", sizes, DEFAULT_SIZE)
        if size > MAX_SIZE:
            raise TooManyItems
        return cls(page=page, size=size)

    @property
    def before(self) -> int:
        """How many items come before this page."""
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
