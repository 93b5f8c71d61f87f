"""What the repositories need from a database, and where the databases' SQL differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Values: TypeAlias = Mapping[str, object]
"""The values of a statement's named parameters."""

OnWait: TypeAlias = Callable[[float], None]
"""Receives the seconds that a unit waited to begin, even if it waited in vain. Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The fragments of SQL that differ between the databases."""

    page_reference: str
    """The reference of a session's current page, written as in its index."""

    among_ids: str
    """The condition that the preceding column is in `:ids`, a list."""

    order_of_creation: str
    """The column that orders rows with the same time."""

    skip_locked: str
    """The end of a subquery that skips rows locked by other transactions."""

    now: str
    """The time: the caller's `:now`, or the server's if several machines share a database."""


class Cursor(Protocol):
    """The result of a statement. A row has the types of its columns."""

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

    A parameter is written `:name` in a statement. Its value may be a number, a boolean, text, a
    time, or a list where the dialect supports lists.
    """

    @property
    def dialect(self) -> Dialect:
        """The SQL of this database."""
        ...

    @property
    def for_update(self) -> str:
        """The end of a SELECT that locks the rows that it reads, in a write transaction."""
        ...

    def execute(self, statement: str, values: Values | None = None) -> Cursor:
        """Run a statement. Raises RuntimeError after the end of the transaction."""
        ...

    def execute_many(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a writing statement once for each row; return the number of changed rows."""
        ...

    def one(self, statement: str, values: Values | None = None) -> tuple[Any, ...]:
        """Run a statement that returns exactly one row, and return the row."""
        ...

    def lock(self, *key: str) -> None:
        """Lock a key until the transaction ends. In a read transaction, do nothing.

        Use it for a row that may not exist yet. Waits for another transaction that holds the key.
        """
        ...

    def commit(self) -> None:
        """Commit. The transaction is then over, even if this fails.

        Raises ServiceUnavailable if the transaction was not committed, or if its outcome stays
        unknown.
        """
        ...
