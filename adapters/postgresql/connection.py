"""Connections to the PostgreSQL server: the pool, transactions, commits in doubt and errors.

The pool comes from psycopg. This module adds three features: statements end even if the server
hangs, calls fail quickly while the server is down, and the outcome of a commit is looked up if the
response to the commit is lost.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import cache
from typing import Any, Final, Self, TypeAlias, TypeVar

import psycopg
import structlog
from psycopg.abc import PQGen
from psycopg.errors import ConnectionTimeout, Diagnostic
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.string import TextLoader
from psycopg_pool import ConnectionPool
from typing_extensions import override

from adapters.postgresql.address import AddressInvalid, require_readable
from adapters.sql.errors import DatabaseUnavailable
from adapters.sql.transaction import Dialect, OnWait, Values
from domain.errors import ServiceUnavailable

Error: TypeAlias = psycopg.Error
"""Any error of PostgreSQL or its client."""

Received = TypeVar("Received")

log = structlog.get_logger()

CONNECT_SECONDS: Final = 2
"""How long a unit waits for a connection from the pool, and how long connecting may take."""
AWAY_SECONDS: Final = 0.5
"""How long a unit waits for a connection while the server is known to be down."""
CHECK_SECONDS: Final = 1.5
"""How long the server may take to begin a transaction, which also checks the connection."""
LOCK_SECONDS: Final = 5
"""How long a statement waits for a lock."""
STATEMENT_SECONDS: Final = 8
"""How long a statement may take while guests or clients wait. This is longer than LOCK_SECONDS."""
IN_DOUBT_SECONDS: Final = 3
"""How long to look for the outcome of a commit whose response was lost."""

_CONFLICTS: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_UNAVAILABLE: Final = (
    psycopg.OperationalError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InternalError_,
    psycopg.errors.DataCorrupted,
    psycopg.errors.IndexCorrupted,
)
"""Errors that mean that the database is unavailable, not that the statement is wrong."""

_DIALECT: Final = Dialect(
    page_reference="attempt #>> '{page,reference}'",
    among_ids="= ANY(:ids::uuid[])",
    order_of_creation="sequence",
    skip_locked=" FOR UPDATE SKIP LOCKED",
    now="now()",
)

_PARAMETER: Final = re.compile(r"(?<!:):([a-z_]+)")
"""A named parameter in a statement, such as `:name`. It has one colon, because `::` is a cast."""

_IS_STANDBY: Final = "the server is a standby"

_WARNING: Final = "01000"
"""The SQLSTATE of a warning without a code of its own."""

_TO_ROLL_BACK: Final = (TransactionStatus.INTRANS, TransactionStatus.INERROR)
_RESPONDED: Final = (TransactionStatus.IDLE, TransactionStatus.INERROR)
"""The states of a connection after the server refused to begin a transaction."""

# These values are set in each transaction, because behind a pooler the next transaction may get
# another session of the server.
_BEGIN: Final = f"""
BEGIN ISOLATION LEVEL {{}};
SET LOCAL TimeZone = 'UTC';
SET LOCAL lock_timeout = '{LOCK_SECONDS}s';
SET LOCAL idle_in_transaction_session_timeout = '60s'
"""
_BEGIN_READING: Final = f"""{_BEGIN.format("REPEATABLE READ READ ONLY")};
SELECT pg_is_in_recovery()
"""
# A committed transaction must be on disk. A role may set a stricter value, but not a weaker one.
# `_commit` needs the server's warnings.
_BEGIN_WRITING: Final = f"""{_BEGIN.format("READ COMMITTED")};
SET LOCAL client_min_messages = 'warning';
SELECT CASE WHEN current_setting('synchronous_commit') = 'off'
            THEN set_config('synchronous_commit', 'on', true) END
"""

# Crash recovery resets these statistics, so their reset time identifies the recovery. The time is
# read in each transaction, because behind a pooler a connection outlives a restart of the server.
_RECOVERED_AT: Final = "(SELECT stats_reset FROM pg_stat_bgwriter)"

# The last two values identify the transaction if its commit is in doubt.
_BEGIN_IDENTIFIED: Final = f"{_BEGIN_WRITING}, pg_current_xact_id()::text, {_RECOVERED_AT}"

Begun: TypeAlias = psycopg.Cursor[TupleRow] | psycopg.Error
"""The response to the statements that begin a transaction, or the error with which the server
refused them.
"""


class Conflict(Exception):
    """A deadlock or serialization failure. The transaction may succeed if it is repeated."""


class NotReplicated(psycopg.OperationalError):
    """The server has committed, but has stopped waiting for its synchronous standbys."""


class Connection(psycopg.Connection[TupleRow]):
    """A connection whose statements end in time, even if the server or the network hangs.

    `statement_seconds` is the time limit for each statement, or None if there is no limit.
    """

    statement_seconds: float | None = STATEMENT_SECONDS
    _waiting_since: float | None = None

    @override
    def wait(
        self, gen: PQGen[Received], interval: float = 0.1, timeout: float | None = None
    ) -> Received:
        self._waiting_since = time.monotonic()
        try:
            seconds = self.statement_seconds if timeout is None else timeout
            return super().wait(gen, interval, seconds)
        finally:
            self._waiting_since = None

    @property
    def is_responsive(self) -> bool:
        """Whether the connection is open and the server answers within CHECK_SECONDS."""
        since = self._waiting_since
        return not self.closed and (since is None or time.monotonic() - since <= CHECK_SECONDS)

    @contextmanager
    def limited_to(self, seconds: float | None) -> Iterator[None]:
        """Set `statement_seconds` to `seconds` for the statements in a `with` block."""
        before, self.statement_seconds = self.statement_seconds, seconds
        try:
            yield
        finally:
            self.statement_seconds = before


class Transaction:
    """An open transaction, which refuses statements after its end."""

    dialect: Final = _DIALECT

    def __init__(self, connection: Connection, begun: Begun, *, url: str, writing: bool) -> None:
        """Represent a transaction that has begun on `connection`, a connection to `url`.

        `begun` is the response to the statements that began the transaction. If it is an error, the
        error is raised. Raises OperationalError if the server is a standby, unless the connection
        has no `statement_seconds`. Only the commands of `cardonfile` use such connections, so only
        these commands may read from a standby.
        """
        self._connection: Connection | None = connection
        self._url = url
        self._is_writing = writing
        self._xid: str | None = None
        self._recovered_at: datetime | None = None
        if isinstance(begun, psycopg.Error):
            raise begun
        if writing:
            _, self._xid, self._recovered_at = _one(begun.set_result(-1))
        else:
            (is_standby,) = _one(begun.set_result(-1))
            # Behind a pooler, a connection outlives a failover. Commands may read from a standby.
            if is_standby and connection.statement_seconds is not None:
                raise psycopg.OperationalError(_IS_STANDBY)

    @property
    def connection(self) -> Connection:
        """The connection. Raises RuntimeError after the end of the transaction."""
        if self._connection is None:
            raise RuntimeError("this unit of work is over")
        return self._connection

    def execute(self, statement: str, values: Values | None = None) -> psycopg.Cursor[TupleRow]:
        """Run a statement. Raises RuntimeError after the end of the transaction."""
        return self.connection.execute(_for_psycopg(statement), values)

    def execute_many(self, statement: str, rows: Iterable[Values]) -> int:
        """Run a writing statement once for each item of `rows`.

        Return how many rows were changed.
        """
        with self.connection.cursor() as cursor:
            cursor.executemany(_for_psycopg(statement), rows)
            return cursor.rowcount

    def one(self, statement: str, values: Values | None = None) -> TupleRow:
        """Run a statement that returns exactly one row, and return the row."""
        return _one(self.execute(statement, values))

    @property
    def for_update(self) -> str:
        """The text to append to a SELECT so that it locks its rows. Empty in a read transaction."""
        return " FOR UPDATE" if self._is_writing else ""

    def lock(self, *key: str) -> None:
        """Take an advisory lock on a key until the end of a write transaction.

        Does nothing in a read transaction.
        """
        if self._is_writing:
            self.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(:key, 0))",
                {"key": "\x1f".join(key)},
            )

    def commit(self) -> None:
        """Commit. The transaction is then over, even if the commit fails.

        If the connection is lost before the response arrives, or if the server has stopped waiting
        for its synchronous standbys, the outcome is looked up with another connection. Raises
        ServiceUnavailable if the transaction was not committed, or if its outcome is unknown.
        """
        connection = self.connection
        if not self._is_writing:
            raise RuntimeError("this unit of work may not write")
        self.end()
        try:
            committed = _commit(connection)
        except _CONFLICTS:
            raise
        except psycopg.OperationalError as error:
            connection.close()
            if not _was_committed(self._url, self._xid, self._recovered_at):
                raise ServiceUnavailable from error
        else:
            if committed != "COMMIT":
                # PostgreSQL rolls back if an earlier statement of the transaction failed.
                raise RuntimeError("an earlier statement of this unit of work failed")

    def end(self) -> None:
        """Refuse further statements. May be called more than once."""
        self._connection = None


class Connections:
    """A pool of connections. It is opened when first needed, so it is not shared across a fork."""

    def __init__(
        self,
        url: str,
        *,
        connections: int,
        statement_seconds: float | None,
        on_wait: OnWait = lambda _: None,
    ) -> None:
        """Prepare a pool of at most `connections` connections to the database at `url`.

        `statement_seconds` is how long a statement may take. The commands of `cardonfile` pass
        None: statements then have no limit, and units may also read from a standby. `on_wait` is
        called with the seconds that each unit has waited for a connection.
        """
        self._url = url
        self._on_wait = on_wait
        self._statement_seconds = statement_seconds
        self._max_connections = connections
        self._pool: ConnectionPool[Connection] | None = None
        self._opening = threading.Lock()
        self._in_use: set[Connection] = set()
        self._is_away = False
        self._refusal: psycopg.Error | None = None
        self._logged: set[tuple[bool, str]] = set()
        self._trial = threading.Lock()
        self._of_thread = threading.local()

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Transaction]:
        """Open a transaction for a `with` block. Changes that it does not commit are rolled back.

        Raises ServiceUnavailable if the database is unavailable, or if a lock is not free in time.
        Raises Conflict after a deadlock or a serialization failure. Raises RuntimeError if the
        thread already has a transaction, or writes in a read transaction.
        """
        mine = self._of_thread
        if getattr(mine, "is_in_transaction", False):
            raise RuntimeError("units of work do not nest")
        mine.is_in_transaction, mine.is_writing = True, writing
        try:
            with translated(writing=writing), self._pooled() as connection:
                # Only this transaction may use the response.
                begun = vars(mine).pop("begun")
                transaction = Transaction(connection, begun, url=self._url, writing=writing)
                try:
                    yield transaction
                finally:
                    transaction.end()
        finally:
            mine.is_in_transaction = False

    def close(self) -> None:
        """Close every connection. No transaction may be open. May be called more than once."""
        with self._opening:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @contextmanager
    def _pooled(self) -> Iterator[Connection]:
        pool = self._opened()
        connection = self._taken_from(pool)
        self._in_use.add(connection)
        try:
            yield connection
        finally:
            self._in_use.discard(connection)
            with suppress(psycopg.Error):
                if connection.info.transaction_status in _TO_ROLL_BACK:
                    connection.execute("ROLLBACK")
            pool.putconn(connection)

    def _taken_from(self, pool: ConnectionPool[Connection]) -> Connection:
        """Take a connection from the pool, protected by a circuit breaker.

        While the server is down, one thread at a time tries to connect. The other threads fail at
        once.
        """
        was_away = self._is_away
        if was_away and not self._trial.acquire(blocking=False):
            raise ServiceUnavailable from self._unavailable()
        began = time.monotonic()
        try:
            connection = pool.getconn(AWAY_SECONDS if was_away else CONNECT_SECONDS)
        except psycopg.OperationalError:
            # If another thread has a responsive connection, the pool is only exhausted.
            if not any(connection.is_responsive for connection in tuple(self._in_use)):
                self._is_away = True
            raise ServiceUnavailable from self._unavailable()
        finally:
            self._on_wait(time.monotonic() - began)
            if was_away:
                self._trial.release()
        if self._is_away:
            log.warning("database_back")
            self._logged.clear()
        self._is_away = False
        return connection

    def _unavailable(self) -> DatabaseUnavailable:
        """Return the error that states why no connection is available.

        Each reason is logged once in an outage.
        """
        if self._refusal is not None and not isinstance(self._refusal, ConnectionTimeout):
            # The further lines are the client's hints and the attempts at other addresses.
            reason = str(self._refusal).partition("\n")[0]
        elif len(self._in_use) < self._max_connections:
            reason = "the server does not respond"
        else:
            reason = f"all {self._max_connections} connections of this process are in use"
        known = (self._is_away, reason)
        if known not in self._logged:
            self._logged.add(known)
            if self._is_away:
                log.error("database_away", reason=reason)
            else:
                log.error("database_connections_used_up", reason=reason)
        return DatabaseUnavailable(reason, is_read_only=False)

    def _opened(self) -> ConnectionPool[Connection]:
        with self._opening:
            if self._pool is None:
                require_readable(self._url)
                connections = self

                class Noted(Connection):
                    """Records why connecting failed, because the pool does not report it."""

                    @classmethod
                    @override
                    def connect(
                        cls, conninfo: str = "", **options: Any
                    ) -> Self:  # as psycopg has them
                        try:
                            return super().connect(conninfo, **options)
                        except psycopg.Error as refusal:
                            connections._refusal = refusal
                            raise

                self._pool = ConnectionPool(
                    self._url,
                    connection_class=Noted,
                    kwargs={"autocommit": True, "connect_timeout": CONNECT_SECONDS},
                    min_size=1,
                    max_size=self._max_connections,
                    # There is no limit. Until the pool has a connection again, it also counts
                    # waiters that have timed out, and above a limit it would not open a connection.
                    max_waiting=0,
                    # There is no backoff, because the next unit makes the pool connect again.
                    reconnect_timeout=1,
                    check=self._begin_as_check,
                    configure=self._configure,
                    name="cardonfile",
                    open=True,
                )
            return self._pool

    def _configure(self, connection: Connection) -> None:
        self._refusal, connection.statement_seconds = None, self._statement_seconds
        _configure(connection)
        # A standby lacks the latest commits. HAProxy may connect to a standby before it has checked
        # the standby's role.
        is_for_command = self._statement_seconds is None
        if not is_for_command and _one(connection.execute("SELECT pg_is_in_recovery()"))[0]:
            self._refusal = psycopg.OperationalError(_IS_STANDBY)
            raise self._refusal

    def _begin_as_check(self, connection: Connection) -> None:
        """Begin the thread's transaction, which shows whether the connection still works.

        A check in a separate round trip took 11% of the time of an add-card request.
        """
        mine = self._of_thread
        try:
            with connection.limited_to(CHECK_SECONDS):
                mine.begun = _begin(
                    connection, _BEGIN_IDENTIFIED if mine.is_writing else _BEGIN_READING
                )
        except psycopg.Error as refusal:
            if connection.info.transaction_status in _RESPONDED:
                # Another connection would be refused too.
                mine.begun = refusal
                return
            # A restart or failover has most likely cut off the other connections too.
            if self._pool is not None:
                self._pool.drain()
            raise


def connect(url: str) -> Connection:
    """Open a connection outside any pool, and begin a write transaction on it.

    A statement sees data that was committed while it waited for a lock. Raises AddressInvalid or
    psycopg.Error.
    """
    require_readable(url)
    try:
        connection = Connection.connect(url, autocommit=True, connect_timeout=CONNECT_SECONDS)
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        raise AddressInvalid from None
    try:
        _configure(connection)
        _begin(connection, _BEGIN_WRITING)
    except BaseException:
        connection.close()
        raise
    return connection


@contextmanager
def translated(*, writing: bool = True) -> Iterator[None]:
    """Translate the errors of psycopg that are raised in a `with` block.

    If the database is unavailable, ServiceUnavailable is raised. A deadlock or a serialization
    failure becomes Conflict. Other errors are not changed. Raises RuntimeError if the block writes
    although `writing` is False.
    """
    try:
        yield
    except _CONFLICTS as error:
        raise Conflict from error
    except psycopg.errors.ReadOnlySqlTransaction as error:
        if not writing:
            raise RuntimeError("this unit of work may not write") from error
        raise ServiceUnavailable from error
    except _UNAVAILABLE as error:
        raise ServiceUnavailable from error


def _commit(connection: Connection) -> str | None:
    """Commit, and return the status of the response. Raises NotReplicated.

    If an operator or `statement_timeout` cancels the wait for synchronous standbys, PostgreSQL
    reports a successful commit with a warning. NotReplicated is then raised, because a failover
    would lose the commit.
    """
    codes: list[str | None] = []

    def note(notice: Diagnostic) -> None:
        codes.append(notice.sqlstate)

    connection.add_notice_handler(note)
    try:
        committed = connection.execute("COMMIT").statusmessage
    finally:
        connection.remove_notice_handler(note)
    if _WARNING in codes:
        raise NotReplicated("the server stopped waiting for its synchronous standbys")
    return committed


def _was_committed(url: str, xid: str | None, recovered_at: datetime | None) -> bool:
    """Return whether a transaction was committed on the server and its synchronous standbys.

    `xid` is the id of the transaction. `recovered_at` is when the server had last recovered from a
    crash, as the server stated when the transaction began. Return False also if the outcome cannot
    be found out, because the server has recovered from another crash since then, or does not tell
    the outcome in time.
    """
    give_up_at = time.monotonic() + IN_DOUBT_SECONDS
    while time.monotonic() < give_up_at:
        # The connection is not taken from the pool, because threads in the same situation may hold
        # all connections of the pool.
        with (
            suppress(psycopg.Error),
            closing(connect(url)) as connection,
            connection.limited_to(IN_DOUBT_SECONDS),
        ):
            if _one(connection.execute(f"SELECT {_RECOVERED_AT}")) != (recovered_at,):
                # A crash undoes open transactions, and the server assigns their ids again.
                return False
            found = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (xid,))
            (status,) = _one(found)
            if status == "committed":
                # The server may have committed without its standbys, for example because an
                # operator ended the connection. A new commit waits for the standbys, which then
                # have all earlier commits too. It must have some content, because PostgreSQL does
                # not wait for an empty commit.
                connection.execute("SELECT pg_logical_emit_message(true, 'cardonfile', '')")
                _commit(connection)
                return True
            if status != "in progress":
                return False
        time.sleep(0.05)
    return False


def _configure(connection: Connection) -> None:
    # Records hold UUIDs as text, and `Rows` decodes JSON itself.
    connection.adapters.register_loader("uuid", TextLoader)
    connection.adapters.register_loader("jsonb", TextLoader)
    (pid,) = _one(connection.execute("SELECT pg_backend_pid()"))
    if pid != connection.info.backend_pid:
        # There may be a pooler. The server's next session may then lack the statements that were
        # prepared in this session.
        connection.prepare_threshold = None


def _begin(connection: Connection, statements: str) -> psycopg.Cursor[TupleRow]:
    return connection.execute(statements.encode(), prepare=False)


@cache
def _for_psycopg(statement: str) -> bytes:
    """Return a statement whose parameters are written as `%(name)s` instead of `:name`."""
    return _PARAMETER.sub(r"%(\1)s", statement).encode()


def _one(cursor: psycopg.Cursor[TupleRow]) -> TupleRow:
    row = cursor.fetchone()
    assert row is not None
    return row
