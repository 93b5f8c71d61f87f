"""Connections to the database file: one per thread, and what their errors mean."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

import msgspec
from sqlite_utils import Database

from adapters.sql.transaction import Dialect, Values
from domain.errors import ServiceUnavailable

if TYPE_CHECKING:
    # pysqlite3 is this very module built with a newer SQLite; it comes without types.
    import sqlite3
else:
    import pysqlite3 as sqlite3

Error: TypeAlias = sqlite3.Error
"""Whatever SQLite has to complain about."""

IntegrityError: TypeAlias = sqlite3.IntegrityError
"""A row that breaks a rule of its table."""

MAX_IDLE_WAL_BYTES: Final = 64 * 1024 * 1024
"""What is left of the write-ahead log once a large import has been moved out of it."""

FIRST_SAFE_SQLITE: Final = (3, 51, 3)
"""Earlier ones may corrupt a database whose write-ahead log is reset by two connections at once."""

POLL_SECONDS: Final = 0.0005
"""How often a writer looks whether other processes have let go of the database."""

MOST_IN_QUEUE: Final = 8
"""How many threads wait for their turn to write, so that the others go on with what reads."""
QUEUE_SECONDS: Final = 0.5
"""How long those wait that come when so many wait already."""

_DIALECT: Final = Dialect(
    page_reference="json_extract(attempt, '$.page.reference')",
    among_centers="IN (SELECT value FROM json_each(:centers))",
    not_excepted="NOT IN (SELECT value FROM json_each(:except_at))",
    order_of_creation="rowid",
    # Nobody else is changing anything.
    skip_locked="",
)

_JOURNAL_TRIES = 20

_UNAVAILABLE: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_NOTADB,
        sqlite3.SQLITE_CANTOPEN,
    }
)
"""The primary result codes of a database that cannot be used just now, however right the SQL."""

_OF_THE_PATH: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
"""Those of them that are often about the path or its permissions."""


class SqliteIsTooOld(Exception):
    """The SQLite that pysqlite3 was built with is not safe to use."""

    def __init__(self) -> None:
        super().__init__(
            f"pysqlite3 brings SQLite {sqlite3.sqlite_version}, which may corrupt a database; "
            "install it from a wheel, or build it with SQLite 3.51.3 or newer"
        )


class FileUnusable(Exception):
    """A database file that cannot be read or written; the text names the file and says why.

    `is_read_only` tells that it can be read and not written, now and later.
    """

    def __init__(self, path: Path, error: sqlite3.Error) -> None:
        code = _result_code(error) & 0xFF
        self.is_read_only = code == sqlite3.SQLITE_READONLY
        why = _what_is_wrong_with(path) if code in _OF_THE_PATH else None
        super().__init__(f"{path.absolute()}: {error}" + (f"; {why}" if why else ""))


def _what_is_wrong_with(path: Path) -> str | None:
    """Say what SQLite does not: which part of a path keeps a file from being opened or written."""
    folder = path.absolute().parent
    # `os.path` says no where `Path` raises PermissionError.
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir() raises where a folder may not be searched
        return "it is a folder"
    if not os.path.exists(path):  # noqa: PTH110 - as above, for Path.exists()
        return "there is no such file, or this user may not look"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    if not os.access(path, os.R_OK | os.W_OK):
        return "this user may not read and write it"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this user may not write in its folder"
    return None


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Raise ServiceUnavailable in place of the SQLite errors that mean it; others pass through.

    Its cause is a FileUnusable about the database file at `path`.
    """
    try:
        yield
    except sqlite3.Error as error:
        if _result_code(error) & 0xFF in _UNAVAILABLE:
            raise ServiceUnavailable from FileUnusable(path, error)
        raise


def connect(path: Path, *, busy_timeout_seconds: float) -> Database:
    """Open a connection that may change nothing until `PRAGMA query_only` is set off.

    The file must be there: a mistyped path makes no new one. A transaction starts with an explicit
    BEGIN and at no other time. The connection may be closed from any thread. Raises SqliteIsTooOld.
    """
    if sqlite3.sqlite_version_info < FIRST_SAFE_SQLITE:
        raise SqliteIsTooOld
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        # The busy timeout comes first: the statements below may have to wait as well.
        timeout=busy_timeout_seconds,
        isolation_level=None,
        check_same_thread=False,
    )
    try:
        _use_write_ahead_log(connection)
        connection.execute("PRAGMA synchronous=FULL")
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute(f"PRAGMA journal_size_limit={MAX_IDLE_WAL_BYTES}")
        db = Database(connection, strict=True, execute_plugins=False)
        db.execute("PRAGMA query_only=ON")
    except BaseException:
        connection.close()
        raise
    return db


class Transaction:
    """A transaction that is open on a connection, until it is over."""

    dialect: Final = _DIALECT
    for_update: Final = ""
    """Nothing: while one transaction writes, no other one does."""

    def __init__(self, db: Database) -> None:
        """Take a connection on which one has begun."""
        self.db = db
        self._is_over = False

    def execute(self, statement: str, values: Values | None = None) -> sqlite3.Cursor:
        """Run a statement. Raises RuntimeError once the transaction is over."""
        # SQLite itself ends a transaction when the disk is full.
        if self._is_over or not self.db.conn.in_transaction:
            raise RuntimeError("this unit of work is over")
        return self.db.conn.execute(statement, _bound(values or {}))

    def one(self, statement: str, values: Values | None = None) -> tuple[Any, ...]:
        """Run a statement that gives one row, and give the row, of whatever its columns hold."""
        row: tuple[Any, ...] = self.execute(statement, values).fetchone()
        return row

    def take_turns(self, *about: str) -> None:
        """Do nothing: those who write take turns about everything."""

    def commit(self) -> None:
        """Make what was written durable. It is over then, also when that fails."""
        try:
            self.db.conn.execute("COMMIT")
        finally:
            self._is_over = True

    def end(self) -> bool:
        """Undo what was not committed, and tell whether the connection can be used again.

        If not, it is closed, and all of the transaction is gone with it.
        """
        self._is_over = True
        try:
            self.db.rollback()
        except sqlite3.Error:
            self.db.close()
            return False
        return True


class Connections:
    """One connection that writes, and one per thread that reads, each opened when first needed."""

    def __init__(self, path: Path, *, busy_timeout_seconds: float) -> None:
        self._path = path
        self._busy_timeout_seconds = busy_timeout_seconds
        self._of_thread = threading.local()
        # Weak, so that the connection of a thread that has ended is closed with it.
        self._readers: WeakSet[Database] = WeakSet()
        self._opening = threading.Lock()
        # One for all threads: what it has read of the file stays true while nobody else writes.
        self._writer: Database | None = None
        # Threads that queue for a lock get on far sooner than threads that poll SQLite's own.
        self._writing = threading.Lock()
        self._queue = threading.BoundedSemaphore(MOST_IN_QUEUE)

    @contextmanager
    def transaction(
        self, *, writing: bool, wait_seconds: float | None = None
    ) -> Iterator[Transaction]:
        """Open a transaction, and leave nothing of it open at the end.

        `wait_seconds` is for those who write and would rather not wait as long as the others do.

        What the block has not committed is rolled back. Raises RuntimeError when the thread is in
        a transaction already, or writes in one that is not for writing; ServiceUnavailable when
        the database cannot be used just now, or the right to write is not to be had in time.
        """
        mine = self._of_thread
        if getattr(mine, "is_in_transaction", False):
            raise RuntimeError("units of work do not nest")
        mine.is_in_transaction = True
        try:
            with (
                translated(self._path),
                self._write(wait_seconds) if writing else self._read() as opened,
            ):
                yield opened
        finally:
            mine.is_in_transaction = False

    def close(self) -> None:
        """Close all connections, none of which may be in a transaction.

        It may be called again; a transaction after it opens a new connection.
        """
        with self._opening:
            self._of_thread = threading.local()
            connections = list(self._readers)
            self._readers.clear()
        with self._writing:
            if self._writer is not None:
                connections.append(self._writer)
                self._writer = None
        for db in connections:
            db.close()

    @contextmanager
    def _read(self) -> Iterator[Transaction]:
        db: Database | None = getattr(self._of_thread, "reader", None)
        if db is None:
            db = self._connect()
            self._of_thread.reader = db
            with self._opening:
                self._readers.add(db)
        transaction = Transaction(db)
        try:
            db.conn.execute("BEGIN")
            yield transaction
        except sqlite3.Error as error:
            if _result_code(error) == sqlite3.SQLITE_READONLY:
                raise RuntimeError("this unit of work may not write") from error
            raise
        finally:
            if not transaction.end():
                self._of_thread.reader = None

    @contextmanager
    def _write(self, wait_seconds: float | None) -> Iterator[Transaction]:
        seconds = self._busy_timeout_seconds if wait_seconds is None else wait_seconds
        if not self._take_turn(seconds):
            raise ServiceUnavailable
        try:
            db = self._writer = self._writer or self._connect(writing=True)
            transaction = Transaction(db)
            try:
                _begin_writing(db, within_seconds=seconds)
                yield transaction
            finally:
                if not transaction.end():
                    self._writer = None
        finally:
            self._writing.release()

    def _take_turn(self, seconds: float) -> bool:
        if self._writing.acquire(blocking=False):
            return True
        if not self._queue.acquire(timeout=min(seconds, QUEUE_SECONDS)):
            return False
        try:
            return self._writing.acquire(timeout=seconds)
        finally:
            self._queue.release()

    def _connect(self, *, writing: bool = False) -> Database:
        db = connect(self._path, busy_timeout_seconds=self._busy_timeout_seconds)
        if writing:
            db.execute("PRAGMA query_only=OFF")
            db.execute("PRAGMA busy_timeout=0")
        return db


def _bound(values: Values) -> dict[str, object]:
    """Give the values that SQLite has no type for as text: times in UTC, lists as JSON."""
    bound = dict(values)
    for name, value in values.items():
        if isinstance(value, datetime):
            # Of fixed width, so that the order as text is the order in time.
            bound[name] = value.astimezone(UTC).isoformat(timespec="microseconds")
        elif isinstance(value, list):
            bound[name] = msgspec.json.encode(value).decode()
    return bound


def _begin_writing(db: Database, *, within_seconds: float) -> None:
    # SQLite's own busy handler looks less and less often, up to ten times a second, and so leaves
    # the database to another process that is busy writing.
    until = time.monotonic() + within_seconds
    while True:
        try:
            db.conn.execute("BEGIN IMMEDIATE")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error) or time.monotonic() > until:
                raise
        time.sleep(POLL_SECONDS)


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # Leaving the rollback journal does not wait while another process does the same, whatever the
    # timeout. BEGIN IMMEDIATE does wait, and afterwards there is most likely nothing left to do.
    for _ in range(_JOURNAL_TRIES):
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if not _is_busy(error):
                raise
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    connection.execute("PRAGMA journal_mode=WAL")


def _is_busy(error: sqlite3.Error) -> bool:
    return _result_code(error) & 0xFF == sqlite3.SQLITE_BUSY


def _result_code(error: sqlite3.Error) -> int:
    # Errors of the module itself, such as the use of a closed connection, carry no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code
