"""The storage port over one SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from typing_extensions import override

from adapters.sql.unit_of_work import UnitOfWork
from adapters.sqlite.connection import Connections, Error, FileUnusable, Transaction
from adapters.sqlite.imports import Imports
from domain import ports
from domain.errors import ServiceUnavailable
from domain.identifiers import CenterId

CHECK_SECONDS: Final = 0.5


class WriteUnit(UnitOfWork, ports.WriteUnit):
    """The repositories over a transaction that holds the write lock."""

    def __init__(self, transaction: Transaction, path: Path) -> None:
        super().__init__(transaction, Imports(transaction))
        self._open = transaction
        self._path = path

    @override
    def commit(self) -> None:
        try:
            self._open.commit()
        except Error as error:
            raise ServiceUnavailable from FileUnusable(self._path, error)


class SqliteStorage(ports.Storage):
    """Records in the database file at `path`, which `migrations.migrate` has made.

    A unit waits at most `busy_timeout_seconds` for other threads, and as long again for other
    processes; then it raises ServiceUnavailable. Nothing is opened before it is needed.
    """

    def __init__(self, path: Path, *, busy_timeout_seconds: float = 5) -> None:
        self._path = path
        self._connections = Connections(path, busy_timeout_seconds=busy_timeout_seconds)

    @override
    @contextmanager
    def read(self) -> Iterator[ports.UnitOfWork]:
        with self._connections.transaction(writing=False) as transaction:
            yield UnitOfWork(transaction, Imports(transaction))

    @override
    @contextmanager
    def write(self) -> Iterator[ports.WriteUnit]:
        with self._connections.transaction(writing=True) as transaction:
            yield WriteUnit(transaction, self._path)

    @override
    def transact(self, work: Callable[[ports.WriteUnit], ports.Result]) -> ports.Result:
        # Writers take turns from the start, so that nobody gets in the way of another.
        with self.write() as unit:
            return work(unit)

    @override
    def check(self) -> None:
        try:
            # Whoever asks wants to know it now.
            with self._connections.transaction(
                writing=True, wait_seconds=CHECK_SECONDS
            ) as transaction:
                UnitOfWork(transaction, Imports(transaction)).centers.get(CenterId(""))
                # A disk that is full or fails is noticed by a commit that writes. SQLite writes this
                # number, which nobody reads here, also when it stays as it is.
                transaction.execute("PRAGMA user_version=0")
                transaction.commit()
        except Error as error:
            raise ServiceUnavailable from FileUnusable(self._path, error)

    @override
    def close(self) -> None:
        self._connections.close()
