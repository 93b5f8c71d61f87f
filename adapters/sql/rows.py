"""How records become rows and rows become records, read off the fields of the record itself.

A field is a column of the same name. Times stay times, decimals become text, and what holds more
than one value (a nested record, a list) becomes JSON, as text. So a new field needs its line in the
dataclass and a migration, and nothing in between.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import TYPE_CHECKING, Generic, TypeVar

import msgspec
from msgspec import inspect

from adapters.sql.transaction import Transaction, Values

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Record = TypeVar("Record", bound="DataclassInstance")

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
    """The rows of one table, and the records that they stand for.

    `key` names the columns of the primary key, `beside` the columns that the record lacks and
    that are bound beside it. The statements hold nothing but SQL and names of ours, and named
    places.
    """

    def __init__(
        self,
        table: str,
        record_type: type[Record],
        *,
        key: tuple[str, ...],
        beside: tuple[str, ...] = (),
    ) -> None:
        self.table = table
        self.columns = tuple(field.name for field in fields(record_type))
        self._record_type = record_type
        # msgspec learns a type when it first reads one, and crashes when several threads do so at
        # once (0.22). Making a decoder teaches it the type here, where there is one thread.
        msgspec.json.Decoder(record_type)
        self._documents = _documents(record_type)

        stored = self.columns + beside
        changing = [column for column in stored if column not in key]
        changes = ", ".join(f"{column} = :{column}" for column in changing)
        keys = " AND ".join(f"{column} = :{column}" for column in key)
        from_excluded = ", ".join(f"{column} = excluded.{column}" for column in changing)

        self.listed = ", ".join(self.columns)
        self.places = ", ".join(f":{column}" for column in stored)
        self.select = f"SELECT {self.listed} FROM {table} "
        self.insert = f"INSERT INTO {table} ({', '.join(stored)}) VALUES ({self.places}) "
        self.update = f"UPDATE {table} SET {changes} WHERE {keys}"
        self.or_replace = f"ON CONFLICT ({', '.join(key)}) DO UPDATE SET {from_excluded}"

    def row(self, record: Record) -> dict[str, object]:
        """Give the row of a record, by column."""
        row: dict[str, object] = msgspec.to_builtins(
            record, builtin_types=(datetime,), order="deterministic"
        )
        for column in self._documents:
            if row[column] is not None:
                row[column] = msgspec.json.encode(row[column]).decode()
        return row

    def record(self, row: Sequence[object]) -> Record:
        """Give the record of a row, whose values are in the order of `columns`."""
        values = dict(zip(self.columns, row, strict=True))
        for column in self._documents:
            document = values[column]
            if isinstance(document, str):
                values[column] = msgspec.json.decode(document)
        # Not strict, because SQLite has no booleans of its own.
        return msgspec.convert(values, self._record_type, strict=False)

    def find(self, transaction: Transaction, condition: str, values: Values) -> tuple[Record, ...]:
        """Give the records of the rows that a condition (WHERE and what may follow) selects."""
        return self.take(transaction, self.select + condition, values)

    def find_one(self, transaction: Transaction, condition: str, values: Values) -> Record | None:
        """Give the first record that a condition selects, or None."""
        return next(iter(self.find(transaction, condition, values)), None)

    def take(self, transaction: Transaction, statement: str, values: Values) -> tuple[Record, ...]:
        """Run a statement that gives rows of `columns`, to its end, and give their records."""
        return tuple(map(self.record, transaction.execute(statement, values).fetchall()))


def _documents(record_type: type[Record]) -> tuple[str, ...]:
    """Name the fields that hold more than one value."""
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
