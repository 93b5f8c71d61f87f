"""The storage port over a PostgreSQL database."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import uniform
from typing import Final

from typing_extensions import override

from adapters.postgresql.connection import Conflict, Connections, Error, ReadOnly, Transaction
from adapters.postgresql.imports import Imports
from adapters.sql.unit_of_work import UnitOfWork
from domain import ports
from domain.errors import ServiceUnavailable

REPEAT_WITHIN_SECONDS: Final = (0.02, 0.05, 0.1, 0.2)
"""How long, at most, a unit that got in the way of others waits before it is done again."""


class WriteUnit(UnitOfWork, ports.WriteUnit):
    """The repositories over one transaction that may write."""

    def __init__(self, transaction: Transaction, connections: Connections) -> None:
        super().__init__(transaction, Imports(transaction))
        self._open = transaction
        self._connections = connections

    @override
    def commit(self) -> None:
        self._connections.commit(self._open)


class PostgresqlStorage(ports.Storage):
    """Records in the database at `url`, which `migrations.migrate` has prepared.

    At most `connections` are open to it. Nothing is opened before it is needed.
    """

    def __init__(self, url: str, *, connections: int = 10) -> None:
        self._connections = Connections(url, connections=connections)

    @override
    @contextmanager
    def read(self) -> Iterator[ports.UnitOfWork]:
        with _given_up(), self._connections.transaction(writing=False) as transaction:
            yield UnitOfWork(transaction, Imports(transaction))

    @override
    @contextmanager
    def write(self) -> Iterator[ports.WriteUnit]:
        with _given_up(), self._write_unit() as unit:
            yield unit

    @override
    def transact(self, work: Callable[[ports.WriteUnit], ports.Result]) -> ports.Result:
        for seconds in REPEAT_WITHIN_SECONDS:
            try:
                with self._write_unit() as unit:
                    return work(unit)
            except Conflict:
                # Apart, so that those who got in each other's way do not meet again.
                time.sleep(uniform(0, seconds))  # noqa: S311 - nobody gains by guessing it
        with self.write() as unit:
            return work(unit)

    @override
    def check(self) -> None:
        try:
            with _given_up(), self._connections.transaction(writing=False) as transaction:
                # Asked and not tried: each write transaction uses up a number of the server's.
                (may_write,) = transaction.one(
                    "SELECT NOT pg_is_in_recovery() "
                    "AND NOT current_setting('default_transaction_read_only')::boolean "
                    "AND has_table_privilege('idempotency_keys', 'DELETE')"
                )
        except Error as error:
            raise ServiceUnavailable from error
        if not may_write:
            raise ServiceUnavailable from ReadOnly("the server lets this role read only")

    @override
    def close(self) -> None:
        self._connections.close()

    @contextmanager
    def _write_unit(self) -> Iterator[WriteUnit]:
        with self._connections.transaction(writing=True) as transaction:
            yield WriteUnit(transaction, self._connections)


@contextmanager
def _given_up() -> Iterator[None]:
    """Raise ServiceUnavailable for a unit in whose way others got."""
    try:
        yield
    except Conflict as conflict:
        raise ServiceUnavailable from conflict
