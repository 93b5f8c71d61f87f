"""The parts that all repositories share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, Generic, TypeVar

import msgspec

from adapters.sql.rows import Record, Rows
from adapters.sql.transaction import Dialect, Transaction, Values
from domain.identifiers import CenterId, GuestId
from domain.pagination import Page, PageRequest
from domain.retries import Waiting
from domain.storage import AlreadyStored

MAX_FORGOTTEN: Final = 100
"""The maximum number of old rows that one call deletes, to keep units of work short."""

RecordId = TypeVar("RecordId", bound=str)


EVENTS_ARE_EVIDENCE: Final = (
    "EXISTS (SELECT 1 FROM agreements JOIN guests ON guests.id = agreements.guest_id "
    "WHERE token_id = :token_id)"
)
"""The SQL condition under which a session's events are kept because an agreement needs them."""


def where(conditions: Mapping[str, object]) -> str:
    """Return a WHERE clause with the conditions whose value is not None.

    Return "" if there are no such conditions.
    """
    given = [condition for condition, value in conditions.items() if value is not None]
    return f"WHERE {' AND '.join(given)} " if given else ""


def assignments(columns: Iterable[str]) -> str:
    """Return the assignments after SET, in which each column gets the parameter of the same name."""
    return ", ".join(f"{column} = :{column}" for column in columns)


def waiting(items: object, since: object) -> Waiting:
    """Convert two values in a row of a result: the count of waiting items, and the oldest time.

    `items` may be a decimal, because it may be a sum. If there are no waiting items, `items` is 0
    or None, and `since` is None.
    """
    return Waiting(int(str(items or 0)), msgspec.convert(since, datetime | None))


class Repository:
    """The base class of repositories, each of which uses the transaction of its unit."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    @property
    def _dialect(self) -> Dialect:
        return self._transaction.dialect

    def _forget(self, table: str, key: str, condition: str, *more: str, **times: datetime) -> int:
        """Delete a limited number of rows that match a condition, and return their number.

        `key` contains the columns of the primary key. `times` are the values of the condition's
        parameters. `more` are further tables, from which the rows with the same keys are deleted
        too. If `more` is given, the key must be a single column.
        """
        forgotten = self._transaction.execute(
            f"DELETE FROM {table} WHERE ({key}) IN ({self._old(table, key, condition)}) "
            f"RETURNING {key}",
            {**times, "limit": MAX_FORGOTTEN},
        ).fetchall()
        self._delete(*more, key=key, ids=[forgotten_key for forgotten_key, *_ in forgotten])
        return len(forgotten)

    def _old(self, table: str, key: str, condition: str) -> str:
        skip_locked = self._dialect.skip_locked
        return f"SELECT {key} FROM {table} WHERE {condition} LIMIT :limit{skip_locked}"

    def _delete(self, *tables: str, key: str, ids: Sequence[object]) -> None:
        for table in tables:
            self._transaction.execute(
                f"DELETE FROM {table} WHERE {key} {self._dialect.among_ids}", {"ids": ids}
            )

    def _reassign(self, table: str, merged: GuestId, remaining: GuestId) -> None:
        self._transaction.execute(
            f"UPDATE {table} SET guest_id = :remaining WHERE guest_id = :merged",
            {"merged": merged, "remaining": remaining},
        )

    def _is_any(self, statement: str, values: Values) -> bool:
        return self._transaction.execute(statement, values).fetchone() is not None


class Table(Repository, Generic[Record]):
    """The base class of repositories that store one kind of record in one table."""

    _rows: Rows[Record]

    def add(self, record: Record) -> None:
        """Store a new record. Raises AlreadyStored if a unique constraint refuses it."""
        added = self._transaction.execute(self._rows.insert_new, self._row(record))
        if added.rowcount == 0:
            raise AlreadyStored

    def update(self, record: Record) -> None:
        """Replace a stored record."""
        self._transaction.execute(self._rows.update, self._row(record))

    def _row(self, record: Record) -> dict[str, object]:
        return self._rows.row(record)

    def _page(
        self,
        condition: str,
        values: Values,
        *,
        order: str,
        request: PageRequest,
        find: Callable[[Transaction, str, Values], tuple[Record, ...]] | None = None,
    ) -> Page[Record]:
        """Return a page of the records that match a condition.

        The rows are read with `find`, which is `_rows.find` by default.
        """
        (total,) = self._transaction.one(
            f"SELECT count(*) FROM {self._rows.table} {condition}", values
        )
        if request.before >= total:
            return Page(items=(), total=total, request=request)
        items = (find or self._rows.find)(
            self._transaction,
            f"{condition}ORDER BY {order} LIMIT :size OFFSET :before",
            {**values, "size": request.size, "before": request.before},
        )
        return Page(items=items, total=total, request=request)

    def _page_of_guest(
        self,
        condition: str,
        values: Values,
        centers: frozenset[CenterId] | None,
        *,
        order: str,
        request: PageRequest,
    ) -> Page[Record]:
        """Return a page of a guest's records at `centers`, or at all centers if `centers` is None."""
        at_centers = "" if centers is None else f"AND center_id {self._dialect.among_ids} "
        return self._page(
            f"WHERE {condition} {at_centers}",
            {**values, "ids": sorted(centers or ())},
            order=order,
            request=request,
        )


class ById(Table[Record], Generic[RecordId, Record]):
    """The base class of repositories whose records are found by id.

    If `_is_locked` is set, `get` locks the row in a write unit.
    """

    _is_locked = False

    def get(self, record_id: RecordId) -> Record | None:
        """Return the record, or None."""
        key = {self._rows.key: record_id}
        return self._rows.get(self._transaction, lock=self._is_locked, **key)

    def put_many(self, records: Iterable[Record]) -> None:
        """Store records. Records that are already stored are replaced."""
        self._transaction.execute_many(
            self._rows.insert + self._rows.or_replace, map(self._rows.row, records)
        )
