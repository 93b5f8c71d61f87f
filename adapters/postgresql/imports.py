"""Bulk imports at constant memory: COPY into a temporary table, check there, INSERT from there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from typing_extensions import override

from adapters.postgresql.connection import Transaction
from adapters.sql import imports as sql
from adapters.sql.rows import Record, Rows
from domain import ports

_REPEATED: Final = (
    "SELECT min(place) FROM (SELECT place, row_number() OVER (PARTITION BY id ORDER BY place) AS n "
    "FROM incoming) AS numbered WHERE n > 1"
)
_WITHOUT_CENTER: Final = (
    "SELECT min(place) FROM incoming WHERE NOT EXISTS "
    "(SELECT FROM centers WHERE centers.id = incoming.center_id)"
)
_OF_ANOTHER_CENTER: Final = (
    "SELECT min(place) FROM incoming JOIN products USING (id) "
    "WHERE products.center_id <> incoming.center_id"
)


class Imports(sql.Imports):
    """Imports within one transaction."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    @override
    def put_records(self, rows: Rows[Record], records: Iterable[Record]) -> None:
        with _incoming(self._transaction, rows, records):
            _refuse(self._transaction, {ports.DuplicateInImport: _REPEATED})
            self._transaction.execute(
                f"INSERT INTO {rows.table} ({rows.listed}) SELECT {rows.listed} FROM incoming "
                + rows.or_replace
            )

    @override
    def put_products(self, rows: Rows[Record], products: Iterable[Record]) -> None:
        with _incoming(self._transaction, rows, products):
            _refuse(
                self._transaction,
                {
                    ports.DuplicateInImport: _REPEATED,
                    ports.UnknownCenterInImport: _WITHOUT_CENTER,
                    ports.CenterChangedInImport: _OF_ANOTHER_CENTER,
                },
            )
            listed = ", ".join(f"incoming.{column}" for column in rows.columns)
            self._transaction.execute(
                # Materialized: otherwise max(position) is looked up for each row, ever more slowly.
                "WITH last AS MATERIALIZED (SELECT center_id, (SELECT coalesce(max(position), 0) "
                "FROM products WHERE products.center_id = named.center_id) AS position "
                "FROM (SELECT DISTINCT center_id FROM incoming) AS named) "
                f"INSERT INTO products ({rows.listed}, position) "
                f"SELECT {listed}, coalesce(products.position, last.position + row_number() OVER "
                "(PARTITION BY incoming.center_id, products.id IS NULL ORDER BY place)) "
                "FROM incoming LEFT JOIN products USING (id) JOIN last "
                "ON last.center_id = incoming.center_id " + rows.or_replace
            )


@contextmanager
def _incoming(
    transaction: Transaction, rows: Rows[Record], records: Iterable[Record]
) -> Iterator[None]:
    """Copy records into a temporary table `incoming`, numbered from 0 by `place`."""
    with transaction.connection.limited_to(None):
        # One import per table at a time. Readers do not wait for it.
        transaction.execute(f"LOCK TABLE {rows.table} IN SHARE ROW EXCLUSIVE MODE")
        transaction.execute(
            "CREATE TEMPORARY TABLE incoming ON COMMIT DROP AS "
            f"SELECT 0::bigint AS place, {rows.listed} FROM {rows.table} WITH NO DATA"
        )
        with (
            transaction.connection.cursor() as cursor,
            cursor.copy(f"COPY incoming (place, {rows.listed}) FROM STDIN".encode()) as copy,
        ):
            for place, record in enumerate(records):
                copy.write_row((place, *rows.row(record).values()))
        # Autovacuum does not analyze temporary tables.
        transaction.execute("ANALYZE incoming")
        yield
        transaction.execute("DROP TABLE incoming")


def _refuse(transaction: Transaction, checks: Mapping[type[ports.ImportRefused], str]) -> None:
    """Raise for the first record that violates a check; of several checks, the first one counts."""
    found = [
        (place, refused)
        for refused, check in checks.items()
        for (place,) in transaction.execute(check)
        if place is not None
    ]
    if found:
        place, refused = min(found, key=lambda each: each[0])
        raise refused(place)
