"""What the repositories need of a database, and where the SQL of the databases differs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

Values: TypeAlias = Mapping[str, object]
"""The values of a statement's named parameters."""

OnWait: TypeAlias = Callable[[float], None]
"""Is told how many seconds a unit has waited to begin, also in vain. Never raises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Dialect:
    """The fragments of SQL that differ between the databases."""

    page_reference: str
    """The reference of a session's current page, written as in its index."""

    among_ids: str
    """The condition that the column before it is in `:ids`, a list."""

    order_of_creation: str
    """The column that orders rows with the same time."""

    skip_locked: str
    """The end of a subquery that skips rows locked by other transactions."""

    now: str
    """The time: `:now`, the caller's, or the server's where several machines share a database."""


class Cursor(Protocol):
    """The result of a statement. A row holds whatever the columns do."""

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

    A parameter is written `:name` in a statement. Besides numbers, booleans and text, its value may
    be a time, and a list where the dialect has one.
    """

    @property
    def dialect(self) -> Dialect:
        """The SQL of this database."""
        ...

    @property
    def for_update(self) -> str:
        """The end of a SELECT that, in a write transaction, locks the rows that it reads."""
        ...

    def execute(self, statement: str, values: Values | None = None) -> Cursor:
        """Run a statement. Raises RuntimeError once the transaction is over."""
        ...

    def execute_many(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a statement that writes, once for each row; return how many rows changed."""
        ...

    def one(self, statement: str, values: Values | None = None) -> tuple[Any, ...]:
        """Run a statement that returns exactly one row, and return the row."""
        ...

    def lock(self, *key: str) -> None:
        """Lock a key until the transaction ends; in a read transaction, do nothing.

        Use it for what cannot be locked as a row because the row may not exist yet. Waits for
        another transaction that holds the key.
        """
        ...

    def commit(self) -> None:
        """Commit; the transaction is over then, even if this fails.

        Raises ServiceUnavailable when it was not committed, or the outcome stays unknown.
        """
        ...
