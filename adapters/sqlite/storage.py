"""The storage port over one SQLite file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from typing_extensions import override

from adapters.sql.transaction import OnWait
from adapters.sql.unit_of_work import unit_of_work
from adapters.sqlite.connection import Connections, Error, FileUnusable
from domain.errors import ServiceUnavailable
from domain.storage import Returned, Storage, UnitOfWork, WriteUnit

CHECK_SECONDS: Final = 0.5
"""How long the readiness check waits for the write lock."""


class SqliteStorage(Storage):
    """Records in the database file at `path`, which `migrations.migrate` has created.

    A unit waits at most `busy_timeout_seconds` for other threads, and as long again for other
    processes; then it raises ServiceUnavailable. No file is opened before it is needed. `on_wait` is
    told how long each unit that writes has waited for the write lock, and `on_replaced` is called once,
    when the files are no longer those that were opened.
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
            yield unit_of_work(transaction)

    @override
    @contextmanager
    def write(self) -> Iterator[WriteUnit]:
        with self._connections.transaction(writing=True) as transaction:
            yield unit_of_work(transaction)

    @override
    def transact(self, work: Callable[[WriteUnit], Returned]) -> Returned:
        # Writers are serialized from the start, so there is no conflict to repeat the work for.
        with self.write() as unit:
            return work(unit)

    @override
    def check(self) -> None:
        try:
            with self._connections.transaction(
                writing=True, wait_seconds=CHECK_SECONDS
            ) as transaction:
                transaction.execute("SELECT 1 FROM centers LIMIT 1")
                # Only a commit that writes notices a disk that is full or fails. SQLite writes this
                # number, which nothing reads, even if it stays the same.
                transaction.execute("PRAGMA user_version=0")
                transaction.commit()
        except Error as error:
            raise ServiceUnavailable from FileUnusable(self._path, error)

    @override
    def overwrite_deleted(self) -> bool:
        # The file itself has nothing left, as `secure_delete` is on, but for the room between the
        # records of a page that was split. Only VACUUM would clear it, and keep all others waiting.
        return self._connections.empty_log()

    @override
    def close(self) -> None:
        self._connections.close()
