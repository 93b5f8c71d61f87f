"""Bulk imports at constant memory: one INSERT … ON CONFLICT DO UPDATE for each record.

Each row keeps the id of the import that wrote it last. So a record that is repeated within an
import differs from one that existed before.
"""

from __future__ import annotations

from collections.abc import Iterable
from secrets import randbits
from typing import Final

from typing_extensions import override

from adapters.sql import imports as sql
from adapters.sql.rows import Record, Rows
from adapters.sqlite.connection import IntegrityError, Transaction
from domain import ports

_NEXT_POSITION: Final = (
    "(SELECT coalesce(max(position), 0) + 1 FROM products WHERE center_id = :center_id)"
)


class Imports(sql.Imports):
    """Imports within one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    @override
    def put_records(self, rows: Rows[Record], records: Iterable[Record]) -> None:
        self._put(
            f"INSERT INTO {rows.table} ({rows.listed}, import_id) "
            f"VALUES ({rows.parameters}, :import_id) {_or_replace(rows)}",
            rows,
            records,
        )

    @override
    def put_products(self, rows: Rows[Record], products: Iterable[Record]) -> None:
        self._put(
            f"INSERT INTO products ({rows.listed}, import_id, position) "
            f"VALUES ({rows.parameters}, :import_id, {_NEXT_POSITION}) {_or_replace(rows)} "
            "AND center_id = excluded.center_id",
            rows,
            products,
        )

    def _put(self, statement: str, rows: Rows[Record], records: Iterable[Record]) -> None:
        import_id = randbits(63)
        for index, record in enumerate(records):
            row = rows.row(record) | {"import_id": import_id}
            try:
                stored = self._transaction.execute(statement, row)
            except IntegrityError as error:
                # The only constraint that a record can violate is the foreign key to its center.
                raise ports.UnknownCenterInImport(index) from error
            if stored.rowcount == 0:
                if rows.find(self._transaction, "WHERE id = :id AND import_id = :import_id", row):
                    raise ports.DuplicateInImport(index)
                raise ports.CenterChangedInImport(index)


def _or_replace(rows: Rows[Record]) -> str:
    return (
        f"{rows.or_replace}, import_id = excluded.import_id WHERE import_id <> excluded.import_id"
    )
