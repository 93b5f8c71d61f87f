"""The mapping between records and rows, which is derived from the fields of each record.

Each field is stored in the column of the same name. Times are stored as times, decimals as text,
and nested records and lists as JSON. A new field therefore needs only a line in the dataclass and a
migration.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Final, Generic, TypeVar

import msgspec
import structlog
from msgspec import inspect

from adapters.sql.transaction import Transaction, Values
from adapters.thread_safe_types import prepare
from domain.identifiers import TOKEN_PREFIX_LENGTH
from domain.storage import RecordUnreadable

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")

MAX_LOGGED: Final = 100
"""The maximum number of unreadable rows that a process logs for each table."""

log = structlog.get_logger()

_ONE_VALUE = (
    inspect.NoneType,
    inspect.BoolType,
    inspect.IntType,
    inspect.StrType,
    inspect.DecimalType,
    inspect.DateTimeType,
    inspect.EnumType,
)


class Rows(Generic[Record]):
    """Maps the rows of one table to records, and provides the usual statements.

    `key` contains the columns of the primary key. `extra_columns` contains further columns for
    which the record has no field. `or_replace` does not replace the value of a `kept` column by
    None. Every value in a statement is a named parameter.
    """

    def __init__(
        self,
        table: str,
        record_type: type[Record],
        *,
        key: tuple[str, ...],
        extra_columns: tuple[str, ...] = (),
        kept: tuple[str, ...] = (),
    ) -> None:
        self.table = table
        self.key = ", ".join(key)
        columns = tuple(field.name for field in fields(record_type))
        self._key = key
        self._logged: set[str] = set()
        self._record_type = record_type
        prepare(record_type)
        self._documents = _documents(record_type)

        stored = columns + extra_columns
        changing = [column for column in stored if column not in key]
        changes = ", ".join(f"{column} = :{column}" for column in changing)
        self._by_key = "WHERE " + " AND ".join(f"{column} = :{column}" for column in key)
        from_excluded = ", ".join(
            f"{column} = coalesce(excluded.{column}, {table}.{column})"
            if column in kept
            else f"{column} = excluded.{column}"
            for column in changing
        )

        self._selected = columns + tuple(name for name in key if name not in columns)
        self.listed = ", ".join(self._selected)
        self.parameters = ", ".join(f":{column}" for column in stored)
        self.select = f"SELECT {self.listed} FROM {table} "
        self.insert = f"INSERT INTO {table} ({', '.join(stored)}) VALUES ({self.parameters}) "
        self.insert_new = f"{self.insert}ON CONFLICT DO NOTHING"
        self.update = f"UPDATE {table} SET {changes} {self._by_key}"
        self.or_replace = f"ON CONFLICT ({self.key}) DO UPDATE SET {from_excluded}"

    def row(self, record: Record) -> dict[str, object]:
        """Return the row for a record, as a mapping from columns to values."""
        row: dict[str, object] = msgspec.to_builtins(
            record, builtin_types=(datetime,), order="deterministic"
        )
        for column in self._documents:
            if row[column] is not None:
                row[column] = msgspec.json.encode(row[column]).decode()
        return row

    def record(self, row: Sequence[object]) -> Record:
        """Return the record in a row with the columns in `listed`.

        If the row cannot be decoded, it is logged once, and RecordUnreadable is raised.
        """
        values = dict(zip(self._selected, row, strict=True))
        try:
            for column in self._documents:
                document = values[column]
                if isinstance(document, str):
                    values[column] = msgspec.json.decode(document)
            # Not strict, because SQLite stores booleans as integers.
            return msgspec.convert(values, self._record_type, strict=False)
        except msgspec.MsgspecError as error:
            key = "/".join(_shown(column, value) for column, value in self.key_of(row).items())
            if key not in self._logged and len(self._logged) < MAX_LOGGED:
                self._logged.add(key)
                log.error("record_unreadable", table=self.table, key=key)
            raise RecordUnreadable(f"{self.table} {key}") from error

    def key_of(self, row: Sequence[object]) -> dict[str, object]:
        """Return the primary key in a row with the columns in `listed`, by column."""
        values = dict(zip(self._selected, row, strict=True))
        return {column: values[column] for column in self._key}

    def record_or_none(self, row: Sequence[object]) -> Record | None:
        """Return the record in a row with the columns in `listed`.

        Return None if the row cannot be decoded.
        """
        with suppress(RecordUnreadable):
            return self.record(row)
        return None

    def get(self, transaction: Transaction, *, lock: bool = False, **key: str) -> Record | None:
        """Return the record with this primary key, or None.

        With `lock`, its row is locked if the transaction may write.
        """
        return self.find_one(
            transaction, self._by_key + (transaction.for_update if lock else ""), key
        )

    def delete(self, transaction: Transaction, **key: object) -> None:
        """Delete the record with this primary key, if there is one."""
        transaction.execute(f"DELETE FROM {self.table} {self._by_key}", key)

    def find(self, transaction: Transaction, condition: str, values: Values) -> tuple[Record, ...]:
        """Return the records that match a condition, which may also contain ORDER BY and LIMIT.

        Raises RecordUnreadable.
        """
        rows = transaction.execute(self.select + condition, values).fetchall()
        return tuple(map(self.record, rows))

    def find_readable(
        self, transaction: Transaction, condition: str, values: Values
    ) -> tuple[Record, ...]:
        """Return the records that match a condition, except those that cannot be decoded."""
        return tuple(filter(None, self.find_or_none(transaction, condition, values)))

    def find_or_none(
        self, transaction: Transaction, condition: str, values: Values
    ) -> tuple[Record | None, ...]:
        """Return the records that match a condition, with None for each that cannot be decoded."""
        rows = transaction.execute(self.select + condition, values).fetchall()
        return tuple(map(self.record_or_none, rows))

    def unreadable(
        self, transaction: Transaction, condition: str, values: Values
    ) -> list[dict[str, object]]:
        """Return the primary keys of those rows that match a condition and cannot be decoded."""
        rows = transaction.execute(self.select + condition, values).fetchall()
        return [self.key_of(row) for row in rows if self.record_or_none(row) is None]

    def find_one(self, transaction: Transaction, condition: str, values: Values) -> Record | None:
        """Return the first record that matches a condition, or None."""
        return next(iter(self.find(transaction, condition, values)), None)


def _shown(column: str, value: object) -> str:
    """Return the value of a primary key's column in the form in which it is logged."""
    is_token = column.startswith("token")
    return f"{str(value)[:TOKEN_PREFIX_LENGTH]}…" if is_token else str(value)


def _documents(record_type: type[Record]) -> tuple[str, ...]:
    """Return the names of the fields that are stored as JSON."""
    described = inspect.type_info(record_type)
    assert isinstance(described, inspect.DataclassType)
    kinds_of = {
        field.name: field.type.types if isinstance(field.type, inspect.UnionType) else (field.type,)
        for field in described.fields
    }
    return tuple(
        name
        for name, kinds in kinds_of.items()
        if not all(isinstance(kind, _ONE_VALUE) for kind in kinds)
    )
