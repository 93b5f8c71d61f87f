"""The common parts of the repositories."""

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
"""The most old rows that one call deletes, to keep units of work short."""

RecordId = TypeVar("RecordId", bound=str)


EVENTS_ARE_EVIDENCE: Final = (
    "EXISTS (SELECT 1 FROM agreements JOIN guests ON guests.id = agreements.guest_id "
    "WHERE token_id = :token_id)"
)
"""Whether the events of a session are kept with its agreement."""


def where(conditions: Mapping[str, object]) -> str:
    """Return WHERE with the conditions whose value is not None; empty if there are none."""
    given = [condition for condition, value in conditions.items() if value is not None]
    return f"WHERE {' AND '.join(given)} " if given else ""


def assignments(columns: Iterable[str]) -> str:
    """Return the assignments after SET, from columns to parameters of the same names."""
    return ", ".join(f"{column} = :{column}" for column in columns)


def waiting(items: object, since: object) -> Waiting:
    """Return a row's count of waiting work. A sum may be a decimal, or None if there are no rows."""
    return Waiting(int(str(items or 0)), msgspec.convert(since, datetime | None))


class Repository:
    """The repository of one kind of record, using a transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    @property
    def _dialect(self) -> Dialect:
        return self._transaction.dialect

    def _forget(self, table: str, key: str, condition: str, *more: str, **times: datetime) -> int:
        """Delete a limited number of rows that match a condition on `times`; return the number.

        `more` are tables whose rows with the same single-column key are deleted too.
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

    def _give(self, table: str, goes: GuestId, stays: GuestId) -> None:
        self._transaction.execute(
            f"UPDATE {table} SET guest_id = :stays WHERE guest_id = :goes",
            {"goes": goes, "stays": stays},
        )

    def _is_any(self, statement: str, values: Values) -> bool:
        return self._transaction.execute(statement, values).fetchone() is not None


class Table(Repository, Generic[Record]):
    """Records in a table of their own."""

    _rows: Rows[Record]

    def add(self, record: Record) -> None:
        """Store a new record. Raises AlreadyStored if a unique constraint refuses it."""
        added = self._transaction.execute(self._rows.insert_new, self._row(record))
        if added.rowcount == 0:
            raise AlreadyStored

    def update(self, record: Record) -> None:
        """Store a record that exists."""
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
        """Return a page of the records that match a condition. `find` replaces `_rows.find`."""
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
        """Return a page of a guest's records at these centers. None means all centers."""
        at_centers = "" if centers is None else f"AND center_id {self._dialect.among_ids} "
        return self._page(
            f"WHERE {condition} {at_centers}",
            {**values, "ids": sorted(centers or ())},
            order=order,
            request=request,
        )


class ById(Table[Record], Generic[RecordId, Record]):
    """Records found by id. In a write unit their row is locked if `_is_locked`."""

    _is_locked = False

    def get(self, record_id: RecordId) -> Record | None:
        """Return the record, or None."""
        key = {self._rows.key: record_id}
        return self._rows.get(self._transaction, lock=self._is_locked, **key)

    def put_many(self, records: Iterable[Record]) -> None:
        """Insert records, and update existing ones."""
        self._transaction.execute_many(
            self._rows.insert + self._rows.or_replace, map(self._rows.row, records)
        )
