"""Copy all records of an installation from its SQLite file into an empty PostgreSQL database.

Both schemas have the same tables and columns, so the copy is generic. Values are sent as text, and
PostgreSQL converts them to the types of its columns: UUIDs, times, booleans and JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Final, LiteralString, TypeAlias

import psycopg
from psycopg import sql
from psycopg.rows import TupleRow
from sqlite_utils import Database

from adapters.postgresql.connection import Connection, connect
from adapters.postgresql.migrations import apply
from adapters.sql.repositories.worker import SqlWorkers
from adapters.sqlite.connection import Connections, Transaction
from domain.worker.heartbeat import WorkerState
from entrypoints.databases import first_line
from entrypoints.settings import PostgresqlDatabase

WAIT_SECONDS: Final = 5
"""How long to wait for the write lock of the SQLite file."""

MAX_SHOWN: Final = 10
"""An error about differing schemas names at most this many columns."""

_NOT_COPIED: Final = "workers"
"""This table is not copied, because it describes running processes."""

_COLUMNS: Final = """
    SELECT table_name, column_name, is_identity = 'YES'
    FROM information_schema.columns JOIN information_schema.tables USING (table_schema, table_name)
    WHERE table_schema = current_schema() AND table_type = 'BASE TABLE'
        AND table_name NOT IN ('cardonfile_migrations', 'workers')
"""

_Columns: TypeAlias = Mapping[str, Sequence[str]]
"""The columns to copy, by table. Each table comes after the tables that it refers to."""


class CopyFailed(Exception):
    """The copy failed. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Counted:
    """The number of rows of a table in both databases."""

    table: str
    in_sqlite: int
    in_postgresql: int


class Copy:
    """A copy in progress. Until it ends, both databases are locked against other writers."""

    def __init__(self, source: Database, target: Connection) -> None:
        """Prepare a copy between two connections with open transactions.

        The transaction of the source must hold the write lock. Raises CopyFailed if the schemas
        differ, or if the target is not empty.
        """
        self._source = source
        self._target = target
        self._columns = _columns_to_copy(source, target)
        self._all_tables = sql.SQL(", ").join(map(sql.Identifier, self._columns))
        # In this mode, others can read, so that a waiting service stays healthy.
        self._on_target("LOCK TABLE {} IN SHARE ROW EXCLUSIVE MODE", self._all_tables)
        for table in self._columns:
            if self._on_target("SELECT FROM {} LIMIT 1", sql.Identifier(table)).rowcount:
                raise CopyFailed(f"nothing was copied: TO_URL is not empty: it has rows in {table}")
        # While the write lock is held, these numbers do not change.
        self._rows = {table: source.table(table).count for table in self._columns}

    @property
    def total(self) -> int:
        """The number of rows to copy."""
        return sum(self._rows.values())

    def run(self, *, on_copied: Callable[[int], None]) -> Sequence[Counted]:
        """Copy all rows in constant memory, and return the row counts of each table.

        `on_copied` is called with the number of rows that were just sent. Raises CopyFailed if
        copying fails, or if the row counts of the two databases differ at the end.
        """
        for table, columns in self._columns.items():
            self._copy(table, columns, on_copied)
        counted = [
            Counted(table, rows, self._rows_arrived(table)) for table, rows in self._rows.items()
        ]
        for each in counted:
            if each.in_sqlite != each.in_postgresql:
                raise CopyFailed(
                    f"nothing was copied: {each.table} has {each.in_sqlite} rows in SQLite, of "
                    f"which {each.in_postgresql} arrived in PostgreSQL"
                )
        # Without this, the planner would assume that the tables are empty.
        self._on_target("ANALYZE {}", self._all_tables)
        return counted

    def commit(self) -> None:
        """Commit the target.

        Raises CopyFailed if the connection is lost before the server confirms the commit.
        """
        try:
            self._target.commit()
        except psycopg.OperationalError as error:
            raise CopyFailed(
                f"the connection was lost during the commit ({first_line(error)}), so either "
                "everything or nothing was copied. Run the same command again: it copies "
                "everything, or it reports that TO_URL is not empty"
            ) from error

    def _copy(self, table: str, columns: Sequence[str], on_copied: Callable[[int], None]) -> None:
        # The rowid is the order of creation. PostgreSQL fills its identity columns in the same
        # order.
        rows = self._source.table(table).rows_where(select=", ".join(columns), order_by="rowid")
        statement = sql.SQL("COPY {} ({}) FROM STDIN").format(
            sql.Identifier(table), sql.SQL(", ").join(map(sql.Identifier, columns))
        )
        with (
            _in_a_sentence(about=f"{table}: "),
            self._target.cursor() as cursor,
            cursor.copy(statement) as copy,
        ):
            for row in rows:
                copy.write_row(tuple(row.values()))
                on_copied(1)

    def _rows_arrived(self, table: str) -> int:
        row = self._on_target("SELECT count(*) FROM {}", sql.Identifier(table)).fetchone()
        assert row is not None
        return int(row[0])

    def _on_target(
        self, statement: LiteralString, tables: sql.Composable
    ) -> psycopg.Cursor[TupleRow]:
        return self._target.execute(sql.SQL(statement).format(tables))


@contextmanager
def copying(source: Path, target: PostgresqlDatabase, *, anyway: bool = False) -> Iterator[Copy]:
    """Yield a copy that has begun. Unless it is committed, the target is rolled back at the end.

    The target is first migrated, in the same transaction. With `anyway`, the copy is made even if a
    worker is running. Raises CopyFailed, and errors that `databases.in_a_sentence` describes.
    """
    with (
        closing(Connections(source, busy_timeout_seconds=WAIT_SECONDS)) as connections,
        connections.transaction(writing=True) as reading,
        _in_a_sentence(),
        closing(connect(target.url)) as connection,
        connection.limited_to(None),
    ):
        if not anyway:
            _require_no_worker(reading)
        # Time limits that are meant for the service must not end the copy.
        connection.execute(
            "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0"
        )
        apply(connection)
        yield Copy(reading.db, connection)


def _require_no_worker(source: Transaction) -> None:
    """Raise CopyFailed if a worker is running, because its later records would not be copied."""
    for seen in SqlWorkers(source).seen(datetime.now(UTC)):
        if seen.state is WorkerState.RUNNING and not seen.is_missing:
            raise CopyFailed(
                f"nothing was copied: a worker is running (process {seen.worker.pid} on {seen.worker.host}), "
                "so the copy would miss the records that the service stores next. Stop the service "
                "on every machine. If the service was killed, wait a minute, or use --anyway"
            )


def _columns_to_copy(source: Database, target: Connection) -> _Columns:
    """Return the columns to copy, which are all columns except PostgreSQL's identity columns."""
    tables = [
        name
        for name in source.table_names()
        if not name.startswith(("sqlite_", "_sqlite_")) and name != _NOT_COPIED
    ]
    listed = target.execute(_COLUMNS).fetchall()
    identities = {(table, column) for table, column, is_identity in listed if is_identity}
    in_postgresql = {(table, column) for table, column, _ in listed} - identities
    in_sqlite = {
        (table, column.name) for table in tables for column in source.table(table).columns
    } - identities
    if in_sqlite != in_postgresql:
        differing = sorted(f"{table}.{column}" for table, column in in_sqlite ^ in_postgresql)
        raise CopyFailed(
            "nothing was copied: SQLite and PostgreSQL must have the same columns, but only one "
            f"of them has {', '.join(differing[:MAX_SHOWN])}"
        )
    references = {
        table: [key.other_table for key in source.table(table).foreign_keys] for table in tables
    }
    return {
        table: sorted(column for of, column in in_sqlite if of == table)
        for table in TopologicalSorter(references).static_order()
    }


@contextmanager
def _in_a_sentence(*, about: str = "") -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        raise CopyFailed(f"nothing was copied: {about}{first_line(error)}") from error
