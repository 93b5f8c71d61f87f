"""Which storage stands behind CARDONFILE_DATABASE_URL. What one of them needs is imported here."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from domain.errors import ServiceUnavailable
from domain.ports import Storage
from entrypoints.settings import PostgresqlDatabase


class DatabaseOutdated(Exception):
    """A database is missing, or lacks migrations."""

    def __init__(self, database: Path | PostgresqlDatabase) -> None:
        super().__init__(
            f"the database {database} is missing or not up to date: run `cardonfile migrate`"
        )


class PostgresqlNotInstalled(Exception):
    """A PostgreSQL database is to be used, and its client is not installed."""

    def __init__(self) -> None:
        super().__init__(
            "a PostgreSQL database needs an extra that is not installed: "
            "run `make install EXTRAS=postgresql`, or `pip install -e '.[postgresql]'`"
        )


def migrate(database: Path | PostgresqlDatabase) -> list[str]:
    """Bring a database up to date, and name the migrations that it took, in their order.

    All of them are applied, or none; it may run twice, and in several processes at once. Raises
    what `in_a_sentence` knows.
    """
    if isinstance(database, Path):
        from adapters.sqlite import migrations

        return migrations.migrate(database)
    with _extra():
        from adapters.postgresql import migrations as postgresql
    return postgresql.migrate(database.url)


def pending(database: Path | PostgresqlDatabase) -> list[str]:
    """Name the migrations that a database lacks, in their order; changes nothing.

    Raises what `in_a_sentence` knows.
    """
    if isinstance(database, Path):
        from adapters.sqlite import migrations

        return migrations.pending(database)
    with _extra():
        from adapters.postgresql import migrations as postgresql
    return postgresql.pending(database.url)


def require_up_to_date(database: Path | PostgresqlDatabase) -> None:
    """Raise DatabaseOutdated, or what else `in_a_sentence` knows, if it cannot be used as it is."""
    if pending(database):
        raise DatabaseOutdated(database)


def storage_in(database: Path | PostgresqlDatabase, *, connections: int) -> Storage:
    """Give a storage over a database; nothing is opened before it is needed.

    `connections` is how many a PostgreSQL server may be asked for. Raises PostgresqlNotInstalled.
    """
    if isinstance(database, Path):
        from adapters.sqlite.storage import SqliteStorage

        return SqliteStorage(database)
    with _extra():
        from adapters.postgresql.storage import PostgresqlStorage
    return PostgresqlStorage(database.url, connections=connections)


def name_of(database: Path | PostgresqlDatabase) -> str:
    """Say which database it is, for the log: the path of a file, or where a server has it.

    It holds no password. Raises what `in_a_sentence` knows.
    """
    if isinstance(database, Path):
        return str(database.absolute())
    with _extra():
        from adapters.postgresql import connection as postgresql
    return postgresql.name_of(database.url)


def in_a_sentence(error: Exception) -> str | None:
    """Say what is wrong with the database; None for an error that is of no database."""
    from adapters.sqlite import connection as sqlite
    from adapters.sqlite import migrations as sqlite_migrations

    sentences: tuple[type[Exception], ...] = (
        DatabaseOutdated,
        PostgresqlNotInstalled,
        sqlite.SqliteIsTooOld,
        sqlite_migrations.DatabaseIsNewer,
    )
    errors: tuple[type[Exception], ...] = (sqlite.Error,)
    if "adapters.postgresql.migrations" in sys.modules:
        from adapters.postgresql import connection as postgresql
        from adapters.postgresql import migrations as postgresql_migrations

        sentences = (
            *sentences,
            postgresql.AddressInvalid,
            postgresql_migrations.DatabaseIsNewer,
        )
        errors = (*errors, postgresql.Error)
    if isinstance(error, sentences):
        return str(error)
    if isinstance(error, ServiceUnavailable):
        return f"the database cannot be used ({cause_of(error)})"
    if isinstance(error, errors):
        return f"the database does not fit this release ({first_line(error)})"
    return None


def cause_of(unavailable: ServiceUnavailable) -> str:
    """Say why the storage could not be used, in one line; it names the file of SQLite."""
    cause = unavailable.__cause__
    return first_line(cause) if cause else "it is away, or others were writing all the time"


def refuse_read_only(storage: Storage) -> None:
    """Raise ServiceUnavailable when a storage can be read and not written, now and later.

    One that is busy, full or away for a moment is not refused: a service waits for it.
    """
    from adapters.sqlite.connection import FileUnusable

    try:
        storage.check()
    except ServiceUnavailable as unavailable:
        cause = unavailable.__cause__
        if isinstance(cause, FileUnusable) and cause.is_read_only:
            raise
        if "adapters.postgresql.connection" in sys.modules:
            from adapters.postgresql.connection import ReadOnly

            if isinstance(cause, ReadOnly):
                raise


def first_line(error: BaseException) -> str:
    """Give what an error says, without what follows: hints, or the row that it is about."""
    return str(error).partition("\n")[0]


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ImportError as error:
        raise PostgresqlNotInstalled from error
