"""Open the storage at CARDONFILE_DATABASE_URL. Only the adapter that is used is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from adapters.erasure_file import ErasureFileUnusable
from adapters.sql.errors import DatabaseUnavailable, DatabaseUnusable
from adapters.sql.transaction import OnWait
from domain.errors import ServiceUnavailable
from domain.storage import RecordUnreadable, Storage
from entrypoints.settings import PostgresqlDatabase

if TYPE_CHECKING:
    from adapters.postgresql.replication import Replication


class DatabaseOutdated(DatabaseUnusable):
    """The database is missing, or lacks migrations."""

    def __init__(self, database: Path | PostgresqlDatabase) -> None:
        super().__init__(
            f"the database {database} is missing or not up to date: run `cardonfile migrate`"
        )


class PostgresqlNotInstalled(DatabaseUnusable):
    """The PostgreSQL client is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "the PostgreSQL client is not installed: "
            "run `make install EXTRAS=postgresql`, or install requirements-postgresql.txt with pip"
        )


def migrate(database: Path | PostgresqlDatabase) -> list[str]:
    """Apply all pending migrations in one transaction, and return their names in order.

    May be called more than once, and in several processes at once. Raises the errors that
    `in_a_sentence` describes.
    """
    if isinstance(database, Path):
        from adapters.sqlite import migrations

        return migrations.migrate(database)
    with _extra():
        from adapters.postgresql import migrations as postgresql
    return postgresql.migrate(database.url)


def pending(database: Path | PostgresqlDatabase) -> list[str]:
    """Return the names of the pending migrations in order. Changes nothing.

    Raises the errors that `in_a_sentence` describes.
    """
    if isinstance(database, Path):
        from adapters.sqlite import migrations

        return migrations.pending(database)
    with _extra():
        from adapters.postgresql import migrations as postgresql
    return postgresql.pending(database.url)


def require_up_to_date(database: Path | PostgresqlDatabase) -> None:
    """Raise DatabaseOutdated if migrations are pending. Raises the errors of `pending` too."""
    if pending(database):
        raise DatabaseOutdated(database)


def storage_in(
    database: Path | PostgresqlDatabase,
    *,
    connections: int,
    may_take_long: bool = False,
    on_wait: OnWait = lambda _: None,
    on_replaced: Callable[[], None] = lambda: None,
) -> Storage:
    """Return the storage for a database. The database is opened when it is first needed.

    For PostgreSQL, `connections` is the maximum number of connections. With `may_take_long`,
    statements have no time limit. `on_wait` is called with the seconds that a unit of work has
    waited to begin. `on_replaced` is called once if the files of an SQLite database are replaced
    while they are in use. Raises PostgresqlNotInstalled.
    """
    if isinstance(database, Path):
        from adapters.sqlite.storage import SqliteStorage

        return SqliteStorage(database, on_wait=on_wait, on_replaced=on_replaced)
    with _extra():
        from adapters.postgresql.connection import STATEMENT_SECONDS
        from adapters.postgresql.storage import PostgresqlStorage
    return PostgresqlStorage(
        database.url,
        connections=connections,
        statement_seconds=None if may_take_long else STATEMENT_SECONDS,
        on_wait=on_wait,
    )


def name_of(database: Path | PostgresqlDatabase) -> str:
    """Return the path of the database file, or the server's host and database, without passwords.

    Raises the errors that `in_a_sentence` describes.
    """
    if isinstance(database, Path):
        return str(database.absolute())
    with _extra():
        from adapters.postgresql import address
    return address.name_of(database.url)


def replication_of(database: Path | PostgresqlDatabase) -> Replication | None:
    """Return the state of the server's replication, or None for SQLite.

    Raises the errors that `in_a_sentence` describes.
    """
    if isinstance(database, Path):
        return None
    with _extra():
        from adapters.postgresql.replication import read_replication
    return read_replication(database.url)


def open_to_all(database: Path | PostgresqlDatabase) -> list[str]:
    """Return the files of an SQLite database that every user of this machine may read or write."""
    if not isinstance(database, Path):
        return []
    # SQLite creates the other two files with the mode of the first.
    files = (Path(f"{database.absolute()}{end}") for end in ("", "-wal", "-shm"))
    return [str(file) for file in files if file.exists() and file.stat().st_mode & 0o006]


def in_a_sentence(error: BaseException) -> str | None:
    """Return one sentence about an error of a database, or None for any other error."""
    from adapters.sqlite import connection as sqlite

    errors: tuple[type[Exception], ...] = (sqlite.Error,)
    if "adapters.postgresql.connection" in sys.modules:
        from adapters.postgresql import connection as postgresql

        errors = (*errors, postgresql.Error)
    if isinstance(error, DatabaseUnusable):
        return str(error)
    if isinstance(error.__cause__, ErasureFileUnusable):
        return f"no guest was erased: {error.__cause__}"
    if isinstance(error, ServiceUnavailable):
        cause = error.__cause__
        advice = "check that it can be reached, has free space and is not locked"
        if isinstance(cause, DatabaseUnavailable) and cause.is_damaged:
            advice = "restore a backup"
        return f"the database cannot be used ({cause_of(error)}): {advice}"
    if isinstance(error, RecordUnreadable):
        return f"a record cannot be decoded ({error}): use the release that wrote it"
    if isinstance(error, errors):
        return f"the database does not fit this release ({first_line(error)})"
    return None


def cause_of(unavailable: ServiceUnavailable) -> str:
    """Return one line with the reason why the storage was unavailable."""
    cause = unavailable.__cause__
    return first_line(cause) if cause else "it is unreachable, or other writers kept it locked"


def refuse_read_only(storage: Storage) -> None:
    """Raise ServiceUnavailable if a storage is read-only.

    Do nothing if the storage is busy, full or unreachable. The service then waits until it can
    write.
    """
    try:
        storage.check()
    except ServiceUnavailable as unavailable:
        cause = unavailable.__cause__
        if isinstance(cause, DatabaseUnavailable) and cause.is_read_only:
            raise


def first_line(error: BaseException) -> str:
    """Return the first line of an error's message.

    The other lines may contain hints, or the values of a row.
    """
    return str(error).partition("\n")[0]


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise PostgresqlNotInstalled from error
