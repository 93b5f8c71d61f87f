"""The database file in which the fake PSP stores pages, cards and tokens."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, TypeAlias

from sqlite_utils import Database
from sqlite_utils.utils import sqlite3  # type: ignore[attr-defined] # the newer SQLite, if installed

from domain.outside import Ids

Row: TypeAlias = Mapping[str, str | int | float]

# How long to wait for the lock in this process, and then for other processes. The sum is less than
# the 5 s of a PSP call.
_WAIT_SECONDS: Final = 2.0
_SWITCH_TRIES: Final = 20

_TABLES: Final = (
    "keys (name TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "guests (reference TEXT PRIMARY KEY, merchant_account TEXT NOT NULL)",
    "pages (reference TEXT PRIMARY KEY, idempotency_key TEXT NOT NULL UNIQUE, page TEXT NOT NULL)",
    "cards (token TEXT PRIMARY KEY, merchant_account TEXT NOT NULL, guest_reference TEXT NOT NULL)",
    "lost_cards (hash TEXT PRIMARY KEY)",
    (
        "events (id TEXT PRIMARY KEY, body TEXT NOT NULL, created_at REAL NOT NULL,"
        " due_at REAL NOT NULL, tries INTEGER NOT NULL)"
    ),
    "charges (id TEXT PRIMARY KEY, idempotency_key TEXT UNIQUE, charge TEXT NOT NULL)",
)
CARD_ON_PAGE: Final = "CASE WHEN json_valid(page) THEN page ->> '$.card.token' END"
CHARGE_KEY: Final = "charge key"
_KEYS: Final = ("webhook secret", "form key", "fingerprint key", CHARGE_KEY)


class PspUnavailable(Exception):
    """The fake PSP's file cannot be read or written. Nothing was changed.

    The message contains the path of the file and the cause.
    """


class PspDatabase:
    """The database file, which only its owner can read. Each thread has a separate connection.

    `keys` contains the secrets by name. They are created together with the file.
    """

    def __init__(self, path: Path, ids: Ids) -> None:
        """Open the file, or create it with its tables and keys. Raises PspUnavailable."""
        self._path = path
        self._connections = threading.local()
        self._turn = threading.Lock()
        try:
            _make_private(path)
        except OSError as error:
            raise PspUnavailable(f"{path.absolute()}: {error.strerror}") from error
        with self.write() as db:
            for table in _TABLES:
                db.execute(f"CREATE TABLE IF NOT EXISTS {table} STRICT")
            for name in _KEYS:
                db.execute("INSERT OR IGNORE INTO keys VALUES (?, ?)", (name, ids.secret()))
            db.execute(f"CREATE INDEX IF NOT EXISTS pages_card ON pages ({CARD_ON_PAGE})")
            found = rows(db, "SELECT * FROM keys", ())
        self.keys: Mapping[str, str] = {str(row["name"]): str(row["value"]) for row in found}

    def read(self, sql: str, parameters: Sequence[str | float]) -> list[Row]:
        """Return the rows of a query. Raises PspUnavailable."""
        try:
            return rows(self._connection(), sql, parameters)
        except sqlite3.Error as error:
            raise self._unavailable(error) from error

    def close(self) -> None:
        """Close this thread's connection. The next call opens a new connection."""
        db: Database | None = getattr(self._connections, "db", None)
        if db is not None:
            self._connections.db = None
            db.close()

    @contextmanager
    def write(self) -> Iterator[Database]:
        """Begin a write transaction, which is committed at the end of the `with` block.

        An exception in the block rolls back the transaction. Raises PspUnavailable if the file
        cannot be written.
        """
        # Threads wait here, which is cheaper than polling SQLite's lock.
        if not self._turn.acquire(timeout=_WAIT_SECONDS):
            raise self._unavailable("other threads were writing all the time")
        try:
            db = self._connection()
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.commit()
            finally:
                db.rollback()
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        finally:
            self._turn.release()

    def empty_log(self) -> None:
        """Empty the write-ahead log.

        Raises PspUnavailable while another connection uses the log.
        """
        try:
            (is_busy, *_) = self._connection().execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        except sqlite3.Error as error:
            raise self._unavailable(error) from error
        if is_busy:
            raise self._unavailable("other connections were reading all the time")

    def _unavailable(self, why: object) -> PspUnavailable:
        return PspUnavailable(f"{self._path.absolute()}: {why}")

    def _connection(self) -> Database:
        db: Database | None = getattr(self._connections, "db", None)
        if db is None:
            # sqlite3 sets busy_timeout from `timeout`, before the first statement.
            db = Database(
                sqlite3.connect(self._path, timeout=_WAIT_SECONDS, isolation_level=None),
                recursive_triggers=False,
                execute_plugins=False,
            )
            _use_write_ahead_log(db)
            db.execute("PRAGMA synchronous = FULL")
            db.execute("PRAGMA secure_delete = ON")
            self._connections.db = db
        return db


def rows(db: Database, sql: str, parameters: Sequence[str | float]) -> list[Row]:
    """Return the rows of a query. Their columns can be read by name."""
    return list(db.query(sql, parameters))


def _use_write_ahead_log(db: Database) -> None:
    # The switch to the write-ahead log fails at once if another connection holds a lock, whatever
    # the timeout. BEGIN IMMEDIATE waits for the lock; by then, the other connection may already
    # have switched.
    for _ in range(_SWITCH_TRIES):
        try:
            db.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error):
                raise
        db.execute("BEGIN IMMEDIATE")
        db.execute("ROLLBACK")
    db.execute("PRAGMA journal_mode = WAL")


def _make_private(path: Path) -> None:
    # SQLite gives the -wal and -shm files the mode of the database. An existing file is not opened,
    # because closing it would drop the locks of this process's other connections (POSIX advisory
    # locks).
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600))
    except FileExistsError:
        path.chmod(0o600)
