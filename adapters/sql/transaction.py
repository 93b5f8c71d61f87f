"""What the repositories need of a database, and where the databases go ways of their own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Values: TypeAlias = Mapping[str, object]
"""What is bound to the named places of a statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The few pieces of SQL that the databases have no common words for."""

    page_reference: str
    """The reference of a session's current page, in the words of the index on it."""

    among_centers: str
    """What follows a center to say that it is one of `:centers`, a list."""

    not_excepted: str
    """What follows text to say that it is none of `:except_at`, a list of text."""

    order_of_creation: str
    """The column that tells it where several rows may have the same time."""

    skip_locked: str
    """What a SELECT within a change ends with, to pass over rows that others are changing."""


class Cursor(Protocol):
    """The rows that a statement gave. They hold whatever the columns do."""

    @property
    def rowcount(self) -> int:
        """How many rows the statement changed."""
        ...

    def fetchone(self) -> tuple[Any, ...] | None:
        """Give the next row, or None."""
        ...

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Give all rows that are left."""
        ...


class Transaction(Protocol):
    """An open transaction of a database.

    A place in a statement is written `:name`. Besides numbers, flags and text, it takes a time, and
    a list where the dialect has one.
    """

    @property
    def dialect(self) -> Dialect:
        """The database's own words."""
        ...

    @property
    def for_update(self) -> str:
        """What a SELECT ends with so that nobody changes its rows meanwhile, in a write unit."""
        ...

    def execute(self, statement: str, values: Values | None = None) -> Cursor:
        """Run a statement. Raises RuntimeError once the transaction is over."""
        ...

    def one(self, statement: str, values: Values | None = None) -> tuple[Any, ...]:
        """Run a statement that gives one row, and give the row."""
        ...

    def take_turns(self, *about: str) -> None:
        """Wait, in a write unit, until nobody else who takes turns about the same is in one.

        It is for what cannot be locked as a row, because it may not be there yet.
        """
        ...
