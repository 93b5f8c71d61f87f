"""Connections to the database file. All threads share one writer, and each has its own reader."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakSet

import msgspec
import structlog
from sqlite_utils import Database

from adapters.sql.errors import DatabaseUnavailable, DatabaseUnusable
from adapters.sql.transaction import Dialect, OnWait, Values
from domain.errors import ServiceUnavailable

if TYPE_CHECKING:
    # pysqlite3 is the same module, built with a newer SQLite. It comes without types.
    import sqlite3
else:
    import pysqlite3 as sqlite3

Error: TypeAlias = sqlite3.Error
"""Any error of SQLite."""

IntegrityError: TypeAlias = sqlite3.IntegrityError
"""A row that violates a constraint."""

MAX_IDLE_WAL_BYTES: Final = 64 * 1024 * 1024
"""The size to which the write-ahead log is truncated after a large import."""

FIRST_SAFE_SQLITE: Final = (3, 51, 3)
"""Earlier versions may corrupt a database when two connections reset its write-ahead log at once.
"""

POLL_SECONDS: Final = 0.0005
"""The time between two tries of a writer while another process writes."""

MAX_QUEUED_WRITERS: Final = 8
"""The maximum number of threads that may wait to write, so that other threads stay free for
requests that only read.
"""
QUEUE_FULL_SECONDS: Final = 0.5
"""How long a writer waits for a place in the queue if the queue is full."""

EMPTY_LOG_SECONDS: Final = 0.1
"""How long emptying the write-ahead log waits for connections that read from it."""

_DIALECT: Final = Dialect(
    page_reference="json_extract(attempt, '$.page.reference')",
    among_ids="IN (SELECT value FROM json_each(:ids))",
    order_of_creation="rowid",
    # A write transaction locks the whole database.
    skip_locked="",
    now=":now",
)

_WAL_ATTEMPTS: Final = 20

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
"""Primary result codes that mean the database is unavailable, not that the statement is wrong."""

_ABOUT_THE_PATH: Final = frozenset({sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY})
"""The codes whose cause is often the path or its permissions."""

log = structlog.get_logger()


class SqliteIsTooOld(DatabaseUnusable):
    """pysqlite3 was built with a version of SQLite that is not safe to use."""

    def __init__(self) -> None:
        super().__init__(
            f"pysqlite3 contains SQLite {sqlite3.sqlite_version}, which may corrupt a database; "
            "install pysqlite3 from a wheel, or build it with SQLite 3.51.3 or newer"
        )


class FileUnusable(DatabaseUnavailable):
    """A database file cannot be used. The message contains the path of the file and the cause."""

    def __init__(self, path: Path, error: sqlite3.Error) -> None:
        code = _primary_code(error)
        reason = _problem_with(path) if code in _ABOUT_THE_PATH else None
        super().__init__(
            f"{path.absolute()}: {error}" + (f"; {reason}" if reason else ""),
            is_read_only=code == sqlite3.SQLITE_READONLY,
            is_damaged=code == sqlite3.SQLITE_CORRUPT,
        )


class FilesReplaced(DatabaseUnavailable):
    """Another program has replaced or deleted database files that this process has open."""

    def __init__(self, path: Path) -> None:
        super().__init__(
            f"{path.absolute()}: this file or its write-ahead log was replaced or deleted while it "
            "was in use",
            is_read_only=False,
        )


def _problem_with(path: Path) -> str | None:
    """Return the reason why a file cannot be opened or written, or None.

    SQLite's own errors do not contain the reason.
    """
    folder = path.absolute().parent
    # If a folder may not be searched, `os.path` returns False. `Path` raises PermissionError before
    # Python 3.14.
    if os.path.isdir(path):  # noqa: PTH112 - Path.is_dir() may raise
        return "this path is a folder"
    if not os.path.exists(path):  # noqa: PTH110 - Path.exists() may raise
        return "the file does not exist, or this user may not search its folder"
    if os.statvfs(path).f_flag & os.ST_RDONLY:
        return "the file system is read-only"
    if not os.access(path, os.R_OK | os.W_OK):
        return "this user may not read and write the file"
    if not os.access(folder, os.W_OK | os.X_OK):
        return "this user may not write in its folder"
    return None


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Translate the errors of SQLite that are raised in a `with` block.

    If the database is unavailable, ServiceUnavailable is raised, whose cause is a FileUnusable
    about `path`. Other errors are not changed.
    """
    try:
        yield
    except sqlite3.Error as error:
        if _primary_code(error) in _UNAVAILABLE:
            raise ServiceUnavailable from FileUnusable(path, error)
        raise


def connect(path: Path, *, busy_timeout_seconds: float) -> Database:
    """Open a connection that is read-only until `PRAGMA query_only` is switched off.

    The file must exist, so that a mistyped path does not create a file. Only an explicit BEGIN
    starts a transaction. Any thread may use the connection, but only one thread at a time. Raises
    SqliteIsTooOld.
    """
    if sqlite3.sqlite_version_info < FIRST_SAFE_SQLITE:
        raise SqliteIsTooOld
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=rw",
        uri=True,
        # The timeout is set here, because the statements below may have to wait too.
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
    """An open transaction on a connection."""

    dialect: Final = _DIALECT
    for_update: Final = ""
    """Empty, because a write transaction locks the whole database."""

    def __init__(self, db: Database, files: HeldFiles, *, writing: bool) -> None:
        """Wrap a transaction that has begun on `db`, a connection to `files`."""
        self.db = db
        self._files = files
        self._is_writing = writing
        self._is_over = False

    def execute(self, statement: str, values: Values | None = None) -> sqlite3.Cursor:
        """Run a statement. Raises RuntimeError after the end of the transaction."""
        return self._connection().execute(statement, _bound(values or {}))

    def execute_many(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a writing statement once for each item of `rows`.

        Return how many rows were changed.
        """
        return self._connection().executemany(statement, map(_bound, rows)).rowcount

    def _connection(self) -> sqlite3.Connection:
        # SQLite itself ends a transaction if the disk is full.
        if self._is_over or not self.db.conn.in_transaction:
            raise RuntimeError("this unit of work is over")
        return self.db.conn

    def one(self, statement: str, values: Values | None = None) -> tuple[Any, ...]:
        """Run a statement that returns exactly one row, and return the row."""
        row: tuple[Any, ...] = self.execute(statement, values).fetchone()
        return row

    def lock(self, *key: str) -> None:
        """Do nothing, because a write transaction locks the whole database."""

    def commit(self) -> None:
        """Commit. The transaction is then over, even if the commit fails.

        Raises ServiceUnavailable if the commit fails, or if the files were replaced in the
        meantime, because the commit is then lost.
        """
        if self._is_over:
            raise RuntimeError("this unit of work is over")
        if not self._is_writing:
            raise RuntimeError("this unit of work may not write")
        try:
            self.db.conn.execute("COMMIT")
        except sqlite3.Error as error:
            raise ServiceUnavailable from FileUnusable(self._files.path, error)
        finally:
            self._is_over = True
        self._files.require_in_place()

    def end(self) -> bool:
        """Roll back uncommitted changes. Return whether the connection is still usable.

        An unusable connection is closed, which also ends its transaction.
        """
        self._is_over = True
        try:
            self.db.rollback()
        except sqlite3.Error:
            self.db.close()
            return False
        return True


class HeldFiles:
    """The files of a database: the file itself, its write-ahead log, and the index of the log.

    An open connection prevents SQLite from deleting the log, so only another program or a person
    can delete it. After the log was deleted, commits of this process are lost, because a process
    that then opens the database does not find them.
    """

    def __init__(
        self, path: Path, *, busy_timeout_seconds: float, on_replaced: Callable[[], None]
    ) -> None:
        """Open the connection. `on_replaced` is called once if the files are replaced."""
        self.path = path
        self._on_replaced = on_replaced
        self._lock = threading.Lock()
        self._is_told = False
        self._db = connect(path, busy_timeout_seconds=busy_timeout_seconds)
        # SQLite names the log and its index after the target of a symbolic link.
        file = path.resolve()
        self._paths = [path, Path(f"{file}-wal"), Path(f"{file}-shm")]
        try:
            # The first read opens the log.
            self._db.execute("SELECT 1 FROM sqlite_schema").fetchone()
            self._identities = list(map(_identity, self._paths))
        except BaseException:
            self._db.close()
            raise

    def require_in_place(self) -> None:
        """Raise ServiceUnavailable if the files at the paths are not those that were opened.

        The first failure is logged.
        """
        if list(map(_identity, self._paths)) == self._identities:
            return
        with self._lock:
            is_first, self._is_told = not self._is_told, True
        if is_first:
            log.error(
                "database_replaced",
                database=str(self.path.absolute()),
                do="stop the service before you replace, move or delete files of its database",
            )
            self._on_replaced()
        raise ServiceUnavailable from FilesReplaced(self.path)

    def close(self) -> None:
        """Close the connection."""
        self._db.close()


def _identity(path: Path) -> tuple[int, int] | None:
    """Return the device and the inode of a file, or None if the file does not exist."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


class Connections:
    """The connections of one process. Each is opened when it is first needed."""

    def __init__(
        self,
        path: Path,
        *,
        busy_timeout_seconds: float,
        on_wait: OnWait = lambda _: None,
        on_replaced: Callable[[], None] = lambda: None,
    ) -> None:
        self._path = path
        self._busy_timeout_seconds = busy_timeout_seconds
        self._on_wait = on_wait
        self._on_replaced = on_replaced
        self._files: HeldFiles | None = None
        self._files_lock = threading.Lock()
        self._of_thread = threading.local()
        # The references are weak, so that the connection of an ended thread is closed.
        self._readers: WeakSet[Database] = WeakSet()
        self._readers_lock = threading.Lock()
        # A single writer for all threads keeps its page cache valid while no other process writes.
        self._writer: Database | None = None
        # A lock of the process wakes the next writer much sooner than polling SQLite's lock.
        self._write_lock = threading.Lock()
        self._queue = threading.BoundedSemaphore(MAX_QUEUED_WRITERS)

    @contextmanager
    def transaction(
        self, *, writing: bool, wait_seconds: float | None = None
    ) -> Iterator[Transaction]:
        """Open a transaction for a `with` block. Changes that it does not commit are rolled back.

        `wait_seconds` replaces the busy timeout of a write transaction. Raises ServiceUnavailable
        if the database is unavailable, if its files were replaced, or if the write lock is not free
        in time. Raises RuntimeError if the thread already has a transaction, or writes in a read
        transaction.
        """
        mine = self._of_thread
        if getattr(mine, "is_in_transaction", False):
            raise RuntimeError("units of work do not nest")
        mine.is_in_transaction = True
        try:
            with translated(self._path):
                files = self._held_files()
                with self._write(files, wait_seconds) if writing else self._read(files) as opened:
                    yield opened
        finally:
            mine.is_in_transaction = False

    def empty_log(self) -> bool:
        """Move the content of the write-ahead log into the database file, and truncate the log.

        Return False if another connection is still reading from the log.
        """
        with translated(self._path):
            self._held_files()
            # This waits for readers, and writers wait for it.
            with closing(connect(self._path, busy_timeout_seconds=EMPTY_LOG_SECONDS)) as db:
                (is_read, *_) = db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        return not is_read

    def close(self) -> None:
        """Close all connections. No transaction may be open.

        May be called more than once. A later transaction opens a new connection.
        """
        with self._readers_lock:
            self._of_thread = threading.local()
            connections = list(self._readers)
            self._readers.clear()
        with self._write_lock:
            if self._writer is not None:
                connections.append(self._writer)
                self._writer = None
        for db in connections:
            db.close()
        with self._files_lock:
            if self._files is not None:
                self._files.close()
                self._files = None

    def _held_files(self) -> HeldFiles:
        """Return the files after checking that they were not replaced."""
        files = self._files
        if files is None:
            # The lock is not held here, because this may wait for other processes.
            opened = HeldFiles(
                self._path,
                busy_timeout_seconds=self._busy_timeout_seconds,
                on_replaced=self._on_replaced,
            )
            with self._files_lock:
                files = self._files = self._files or opened
            if files is not opened:
                opened.close()
        files.require_in_place()
        return files

    @contextmanager
    def _read(self, files: HeldFiles) -> Iterator[Transaction]:
        db: Database | None = getattr(self._of_thread, "reader", None)
        if db is None:
            db = self._connect()
            self._of_thread.reader = db
            with self._readers_lock:
                self._readers.add(db)
        transaction = Transaction(db, files, writing=False)
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
    def _write(self, files: HeldFiles, wait_seconds: float | None) -> Iterator[Transaction]:
        seconds = self._busy_timeout_seconds if wait_seconds is None else wait_seconds
        began = time.monotonic()
        if not self._acquire_write_lock(seconds):
            self._on_wait(time.monotonic() - began)
            raise ServiceUnavailable
        try:
            db = self._writer = self._writer or self._connect(writing=True)
            transaction = Transaction(db, files, writing=True)
            try:
                try:
                    _begin_immediate(db, within_seconds=seconds)
                finally:
                    self._on_wait(time.monotonic() - began)
                yield transaction
            finally:
                if not transaction.end():
                    self._writer = None
        finally:
            self._write_lock.release()

    def _acquire_write_lock(self, seconds: float) -> bool:
        if self._write_lock.acquire(blocking=False):
            return True
        if not self._queue.acquire(timeout=min(seconds, QUEUE_FULL_SECONDS)):
            return False
        try:
            return self._write_lock.acquire(timeout=seconds)
        finally:
            self._queue.release()

    def _connect(self, *, writing: bool = False) -> Database:
        db = connect(self._path, busy_timeout_seconds=self._busy_timeout_seconds)
        if writing:
            db.execute("PRAGMA query_only=OFF")
            db.execute("PRAGMA busy_timeout=0")
            # Deleted data is overwritten with zeros, so that the file does not contain an erased
            # guest.
            db.execute("PRAGMA secure_delete=ON")
        return db


def _time(value: datetime) -> str:
    # The width is fixed, so that sorting as text sorts by time.
    return value.astimezone(UTC).isoformat(timespec="microseconds")


_TEXT_OF: Final[Mapping[type, Callable[[Any], str]]] = {  # each is called with its own type
    datetime: _time,
    list: lambda value: msgspec.json.encode(value).decode(),
}


def _bound(values: Values) -> dict[str, object]:
    """Convert values that have no type in SQLite to text: times in UTC, and lists as JSON."""
    return {
        name: _TEXT_OF[type(value)](value) if type(value) in _TEXT_OF else value
        for name, value in values.items()
    }


def _begin_immediate(db: Database, *, within_seconds: float) -> None:
    # SQLite's own busy handler backs off to ten tries a second, so it rarely gets the lock while
    # another process writes continuously.
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
    # Switching from the rollback journal fails at once, whatever the timeout, while another process
    # does the same. BEGIN IMMEDIATE waits for that process; then the file has most likely been
    # switched.
    for _ in range(_WAL_ATTEMPTS):
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
    return _primary_code(error) == sqlite3.SQLITE_BUSY


def _primary_code(error: sqlite3.Error) -> int:
    return _result_code(error) & 0xFF


def _result_code(error: sqlite3.Error) -> int:
    # Errors of the Python module itself, such as using a closed connection, carry no code.
    code: int = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code
