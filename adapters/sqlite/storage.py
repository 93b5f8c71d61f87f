"""The storage port, implemented with one SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from typing_extensions import override

from adapters.sql.transaction import OnWait
from adapters.sql.unit_of_work import SqlUnit
from adapters.sqlite.connection import Connections, Error, FileUnusable
from domain.errors import ServiceUnavailable
from domain.storage import Returned, Storage, UnitOfWork, WriteUnit

CHECK_SECONDS: Final = 0.5
"""How long the readiness check waits for the write lock."""


class SqliteStorage(Storage):
    """Stores records in the database file at `path`, which `migrations.migrate` has created.

    A unit waits at most `busy_timeout_seconds` for other threads, and the same time for other
    processes. After that, it raises ServiceUnavailable. Files are opened when they are needed.
    `on_wait` is called with the seconds that each writing unit has waited for the write lock.
    `on_replaced` is called once if the opened files are replaced.
    """

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_seconds: float = 5,
        on_wait: OnWait = lambda _: None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._connections = Connections(
            path,
            busy_timeout_seconds=busy_timeout_seconds,
            on_wait=on_wait,
            on_replaced=on_replaced,
        )

    @override
    @contextmanager
    def read(self) -> Iterator[UnitOfWork]:
        with self._connections.transaction(writing=False) as transaction:
            yield SqlUnit(transaction)

    @override
    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        with self._connections.transaction(writing=True) as transaction:
            yield SqlUnit(transaction)

    @override
    def transact(self, work: Callable[[WriteUnit], Returned]) -> Returned:
        # Only one unit can write at a time, so there are no conflicts after which `work` would have
        # to be repeated.
        with self.write() as unit:
            return work(unit)

    @override
    def check(self) -> None:
        try:
            with self._connections.transaction(
                writing=True, wait_seconds=CHECK_SECONDS
            ) as transaction:
                transaction.execute("SELECT 1 FROM centers LIMIT 1")
                # Only a commit that writes notices a full or failing disk. SQLite writes this
                # number, which nothing reads, even if it stays the same.
                transaction.execute("PRAGMA user_version=0")
                transaction.commit()
        except Error as error:
            raise ServiceUnavailable from FileUnusable(self._path, error)

    @override
    def overwrite_deleted(self) -> bool:
        # The file itself contains no deleted data, because `secure_delete` is on, except in the
        # gaps between the records of a split page. Only VACUUM would clear the gaps, but it would
        # block all others.
        return self._connections.empty_log()

    @override
    def close(self) -> None:
        self._connections.close()
