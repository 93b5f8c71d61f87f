"""The storage port, implemented with a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import uniform
from typing import Final

from typing_extensions import override

from adapters.postgresql.connection import STATEMENT_SECONDS, Conflict, Connections, Error
from adapters.sql.errors import DatabaseUnavailable
from adapters.sql.transaction import OnWait
from adapters.sql.unit_of_work import SqlUnit
from domain.errors import ServiceUnavailable
from domain.storage import Returned, Storage, UnitOfWork, WriteUnit

BACKOFF_SECONDS: Final = (0.02, 0.05, 0.1, 0.2)
"""The longest wait before each repetition of a unit of work that had a conflict."""


class PostgresqlStorage(Storage):
    """Stores records in the database at `url`, which `migrations.migrate` has prepared.

    At most `connections` connections are open at once. Each is opened when it is needed. A
    statement may take `statement_seconds`. If this is None, as for the commands of `cardonfile`,
    statements have no time limit, and units may also read from a standby. `on_wait` is called with
    the seconds that each unit has waited for a connection.
    """

    def __init__(
        self,
        url: str,
        *,
        connections: int = 10,
        statement_seconds: float | None = STATEMENT_SECONDS,
        on_wait: OnWait = lambda _: None,
    ) -> None:
        self._connections = Connections(
            url, connections=connections, statement_seconds=statement_seconds, on_wait=on_wait
        )

    @override
    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        with _unavailable_on_conflict(), self._connections.transaction(writing=False) as opened:
            yield SqlUnit(opened)

    @override
    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        with _unavailable_on_conflict(), self._write_unit() as unit:
            yield unit

    @override
    def transact(self, work: Callable[[WriteUnit], Returned]) -> Returned:
        for seconds in BACKOFF_SECONDS:
            try:
                with self._write_unit() as unit:
                    return work(unit)
            except Conflict:
                # The pause is random, so that the same units do not conflict again.
                time.sleep(uniform(0, seconds))  # noqa: S311 - nobody gains by guessing it
        with self.write() as unit:
            return work(unit)

    @override
    def check(self) -> None:
        try:
            with _unavailable_on_conflict(), self._connections.transaction(writing=False) as opened:
                # A write transaction would use up a transaction id at each check.
                (may_write,) = opened.one(
                    "SELECT NOT pg_is_in_recovery() "
                    "AND NOT current_setting('default_transaction_read_only')::boolean "
                    "AND has_table_privilege('idempotency_keys', 'DELETE')"
                )
                # Data that does not fit into memory is written to a file, unless the disk is full.
                opened.execute("SET LOCAL work_mem = '64kB'")
                opened.execute("SELECT count(*) FROM generate_series(1, 5000)")
        except Error as error:
            raise ServiceUnavailable from error
        if not may_write:
            raise ServiceUnavailable from DatabaseUnavailable(
                "the server allows this role only to read", is_read_only=True
            )

    @override
    def overwrite_deleted(self) -> bool:
        # PostgreSQL overwrites dead rows and its log when it chooses.
        return True

    @override
    def close(self) -> None:
        self._connections.close()

    @contextmanager
    def _write_unit(self) -> Iterator[WriteUnit]:
        with self._connections.transaction(writing=True) as transaction:
            yield SqlUnit(transaction)


@contextmanager
def _unavailable_on_conflict() -> Iterator[None]:
    try:
        yield
    except Conflict as conflict:
        raise ServiceUnavailable from conflict
