"""The interface of a database that the repositories use, and the differences between the dialects."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Values: TypeAlias = Mapping[str, object]
"""The values of a statement's named parameters."""

OnWait: TypeAlias = Callable[[float], None]
"""Receives the seconds that a unit of work waited before it began or gave up. Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The fragments of SQL that differ between SQLite and PostgreSQL."""

    page_reference: str
    """The expression for the reference of a session's current page. The index of these references
    must contain the same expression.
    """

    among_ids: str
    """The end of a condition that requires the column before it to be in the list `:ids`."""

    order_of_creation: str
    """The column that orders rows with the same time."""

    skip_locked: str
    """The end of a subquery that skips rows locked by other transactions."""

    now: str
    """The time: the caller's `:now`, or the server's if several machines share a database."""


class Cursor(Protocol):
    """The result of a statement. The values in a row have the types of their columns."""

    @property
    def rowcount(self) -> int:
        """The number of rows that the statement changed."""
        ...

    def fetchone(self) -> tuple[Any, ...] | None:
        """Return the next row, or None."""
        ...

    def fetchall(self) -> list[tuple[Any, ...]]:
        """Return all remaining rows."""
        ...


class Transaction(Protocol):
    """An open transaction.

    A parameter is written as `:name` in a statement. Its value may be a number, a boolean, a text
    or a time, or a list in those fragments of the dialect that take lists.
    """

    @property
    def dialect(self) -> Dialect:
        """The SQL of this database."""
        ...

    @property
    def for_update(self) -> str:
        """The text to append to a SELECT so that it locks its rows. Empty in a read transaction."""
        ...

    def execute(self, statement: str, values: Values | None = None) -> Cursor:
        """Run a statement. Raises RuntimeError after the end of the transaction."""
        ...

    def execute_many(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a writing statement once for each item of `rows`.

        Return how many rows were changed.
        """
        ...

    def one(self, statement: str, values: Values | None = None) -> tuple[Any, ...]:
        """Run a statement that returns exactly one row, and return the row."""
        ...

    def lock(self, *key: str) -> None:
        """Lock a key until the write transaction ends. Does nothing in a read transaction.

        Use this for a row that may not exist yet. If another transaction has locked the key, wait
        for it to end.
        """
        ...

    def commit(self) -> None:
        """Commit. The transaction is then over, even if this fails.

        Raises ServiceUnavailable if the transaction was not committed, or if its outcome is
        unknown.
        """
        ...
