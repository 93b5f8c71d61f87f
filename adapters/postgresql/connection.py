"""Connections to the PostgreSQL server: a pool, one transaction at a time, what errors mean."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from functools import cache
from typing import Final, TypeAlias, TypeVar

import psycopg
import structlog
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.pq import Conninfo, TransactionStatus
from psycopg.rows import TupleRow
from psycopg.types.string import TextLoader
from psycopg_pool import ConnectionPool
from typing_extensions import override

from adapters.sql.transaction import Dialect, Values
from domain.errors import ServiceUnavailable

Error: TypeAlias = psycopg.Error
"""Whatever PostgreSQL or its client has to complain about."""

ReadOnly: TypeAlias = psycopg.errors.ReadOnlySqlTransaction
"""What a server says to who writes, when it is a standby or set to read only."""

Answer = TypeVar("Answer")

log = structlog.get_logger()

CONNECT_SECONDS: Final = 2
"""How long a unit waits for a connection, and a new connection for the server."""
RETURN_SECONDS: Final = 0.5
"""How long a unit waits for a server that is known to be away."""
CHECK_SECONDS: Final = 1.5
"""How long a server may take to say that it is there, before the connection is given up."""
LOCK_SECONDS: Final = 5
"""How long a unit waits for another one."""
STATEMENT_SECONDS: Final = 8
"""How long any statement may take, but for those of an import: more than it may wait for a lock."""
FATE_SECONDS: Final = 3
"""How long to go on asking what became of a commit whose answer was lost."""

_CONFLICTS: Final = (psycopg.errors.SerializationFailure, psycopg.errors.DeadlockDetected)
_UNAVAILABLE: Final = (
    psycopg.OperationalError,
    psycopg.errors.IdleInTransactionSessionTimeout,
    psycopg.errors.InsufficientPrivilege,
    psycopg.errors.InternalError_,
    psycopg.errors.DataCorrupted,
    psycopg.errors.IndexCorrupted,
)
"""What a server says that cannot be used just now, however right the SQL."""

_IS_READ_AS_MEANT: Final = re.compile(r"[a-z]+://(?:[^@/]*@)?[^@]*")
"""Of any other address, a part of the password would be taken for the host that errors name."""

_SHOWN: Final = ("service", "host", "hostaddr", "port", "dbname", "user")
"""What of an address may be shown. Passwords may also be in `options`, `sslpassword` and others."""

_DIALECT: Final = Dialect(
    page_reference="attempt #>> '{page,reference}'",
    among_centers="= ANY(:centers::uuid[])",
    not_excepted="<> ALL(:except_at)",
    order_of_creation="sequence",
    skip_locked=" FOR UPDATE SKIP LOCKED",
)

_PLACE: Final = re.compile(r"(?<!:):([a-z_]+)")
"""A named place in a statement, and no cast."""

_ROLLED_BACK: Final = (TransactionStatus.INTRANS, TransactionStatus.INERROR)

# One statement for the whole of it: each would be a round trip.
_CONFIGURE: Final = f"""
SELECT set_config('TimeZone', 'UTC', false),
       set_config('lock_timeout', '{LOCK_SECONDS}s', false),
       set_config('idle_in_transaction_session_timeout', '60s', false),
       -- What was answered must be on disk, whatever a role's defaults say. More is fine.
       CASE WHEN current_setting('synchronous_commit') = 'off'
            THEN set_config('synchronous_commit', 'on', false) END,
       -- When the server lost its statistics: whenever it comes up after a crash.
       (SELECT stats_reset FROM pg_stat_bgwriter)
"""


class AddressInvalid(Exception):
    """The address of the database cannot be understood."""

    def __init__(self) -> None:
        # What the client says of it may hold a part of the password.
        super().__init__(
            "the address of the PostgreSQL database cannot be read; special characters in a "
            "password are written as %40 and the like"
        )


class Conflict(Exception):
    """The transaction got in the way of others; done again from its start it may well succeed."""


class Connection(psycopg.Connection[TupleRow]):
    """A connection whose statements end in time even when the server hangs or the network is gone.

    `seconds` is what a statement may take, None for as long as it likes. `recovered_at` is when
    the server came up after its last crash.
    """

    seconds: float | None = STATEMENT_SECONDS
    _asked_at: float | None = None
    recovered_at: datetime | None = None

    @override
    def wait(
        self, gen: PQGen[Answer], interval: float = 0.1, timeout: float | None = None
    ) -> Answer:
        self._asked_at = time.monotonic()
        try:
            return super().wait(gen, interval, self.seconds if timeout is None else timeout)
        finally:
            self._asked_at = None

    @property
    def is_alive(self) -> bool:
        """Tell whether it is not lost, and has not waited for the server for long."""
        asked_at = self._asked_at
        is_waiting = asked_at is not None and time.monotonic() - asked_at > CHECK_SECONDS
        return not (self.closed or is_waiting)

    @contextmanager
    def within(self, seconds: float | None) -> Iterator[None]:
        """Give the statements of a block another time limit."""
        before, self.seconds = self.seconds, seconds
        try:
            yield
        finally:
            self.seconds = before


class Transaction:
    """One transaction, whose statements are refused once it is over."""

    dialect: Final = _DIALECT

    def __init__(self, connection: Connection, *, writing: bool) -> None:
        """Begin it on a connection that is in none."""
        self._connection: Connection | None = connection
        self.is_writing = writing
        self.number: str | None = None
        if writing:
            # Both in one round trip; the server knows by its number what became of a transaction.
            begun = connection.execute(
                "BEGIN ISOLATION LEVEL READ COMMITTED; SELECT pg_current_xact_id()::text",
                prepare=False,
            )
            begun.nextset()
            (self.number,) = _one(begun)
        else:
            connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")

    @property
    def connection(self) -> Connection:
        """The connection. Raises RuntimeError when the transaction is over."""
        if self._connection is None:
            raise RuntimeError("this unit of work is over")
        return self._connection

    def execute(self, statement: str, values: Values | None = None) -> psycopg.Cursor[TupleRow]:
        """Run one statement, whose places are written `:name`."""
        return self.connection.execute(_with_places_of_psycopg(statement), values)

    def one(self, statement: str, values: Values | None = None) -> TupleRow:
        """Run a statement that gives one row, and give the row."""
        return _one(self.execute(statement, values))

    @property
    def for_update(self) -> str:
        """What a SELECT ends with so that nobody changes its rows meanwhile, in a write unit."""
        return " FOR UPDATE" if self.is_writing else ""

    def take_turns(self, *about: str) -> None:
        """Wait, in a write unit, until nobody else who takes turns about the same is in one.

        It is for what cannot be locked as a row, because it may not be there yet.
        """
        if self.is_writing:
            self.execute(
                "SELECT pg_advisory_xact_lock(hashtextextended(:about, 0))",
                {"about": "\x1f".join(about)},
            )

    def end(self) -> None:
        """Refuse every statement from now on. It may be called again."""
        self._connection = None


class Connections:
    """A pool of connections, made when it is first needed and so after any fork."""

    def __init__(self, url: str, *, connections: int) -> None:
        """Take the address of the database, and how many connections may be open to it."""
        self._url = url
        self._max_connections = connections
        self._pool: ConnectionPool[Connection] | None = None
        self._opening = threading.Lock()
        self._in_use: set[Connection] = set()
        self._is_away = False
        self._waiting_for_return = threading.Lock()
        self._of_thread = threading.local()

    @contextmanager
    def transaction(self, *, writing: bool) -> Iterator[Transaction]:
        """Lend a transaction, and leave nothing of it open at the end.

        What the block has not committed is rolled back. Raises RuntimeError when the thread is in
        a transaction already, or writes in one that is not for writing; Conflict when others got
        in its way; ServiceUnavailable when the database cannot be used just now, or a lock is not
        to be had in time.
        """
        mine = self._of_thread
        if getattr(mine, "is_in_transaction", False):
            raise RuntimeError("units of work do not nest")
        mine.is_in_transaction = True
        try:
            with _translated(writing=writing), self._lent() as connection:
                transaction = Transaction(connection, writing=writing)
                try:
                    yield transaction
                finally:
                    transaction.end()
        finally:
            mine.is_in_transaction = False

    def commit(self, transaction: Transaction) -> None:
        """Commit a transaction, which is over then. Raises ServiceUnavailable and RuntimeError.

        When the connection is lost before the answer, the server is asked over another one what
        became of the transaction.
        """
        connection = transaction.connection
        transaction.end()
        try:
            committed = connection.execute("COMMIT").statusmessage
        except _CONFLICTS:
            raise
        except psycopg.OperationalError as error:
            connection.close()
            if not self._was_committed(transaction.number, connection.recovered_at):
                raise ServiceUnavailable from error
        else:
            if committed != "COMMIT":
                # PostgreSQL answers so when a statement had failed, and somebody went on.
                raise RuntimeError("this unit of work has failed before")

    def close(self) -> None:
        """Close every connection; nothing may be in a transaction. It may be called again."""
        with self._opening:
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.close()

    @contextmanager
    def _lent(self) -> Iterator[Connection]:
        pool = self._opened()
        connection = self._taken_from(pool)
        self._in_use.add(connection)
        try:
            yield connection
        finally:
            self._in_use.discard(connection)
            with suppress(psycopg.Error):
                if connection.info.transaction_status in _ROLLED_BACK:
                    connection.execute("ROLLBACK")
            pool.putconn(connection)

    def _taken_from(self, pool: ConnectionPool[Connection]) -> Connection:
        """Take a connection; while the server is away, only one thread waits for it to be back.

        The others are told at once, and free to answer what needs no database.
        """
        waits = self._is_away
        if waits and not self._waiting_for_return.acquire(blocking=False):
            raise ServiceUnavailable
        try:
            connection = pool.getconn(RETURN_SECONDS if waits else None)
        except psycopg.OperationalError:
            # Where others have one, the server is there, and it is connections that are wanting.
            if not self._is_away and not any(each.is_alive for each in tuple(self._in_use)):
                log.error("database_away")
                self._is_away = True
            raise
        finally:
            if waits:
                self._waiting_for_return.release()
        if self._is_away:
            log.warning("database_back")
        self._is_away = False
        return connection

    def _opened(self) -> ConnectionPool[Connection]:
        with self._opening:
            if self._pool is None:
                _require_readable(self._url)
                self._pool = ConnectionPool(
                    self._url,
                    connection_class=Connection,
                    kwargs={"autocommit": True, "connect_timeout": CONNECT_SECONDS},
                    min_size=1,
                    max_size=self._max_connections,
                    timeout=CONNECT_SECONDS,
                    # Those who waited in vain would count until a connection is there again, and
                    # where they are too many, the pool opens none. There are few threads to wait.
                    max_waiting=0,
                    # A server that is away is tried again when somebody asks, not ever more rarely.
                    reconnect_timeout=1,
                    check=self._check,
                    configure=_configure,
                    name="cardonfile",
                    open=True,
                )
            return self._pool

    def _check(self, connection: Connection) -> None:
        try:
            with connection.within(CHECK_SECONDS):
                ConnectionPool.check_connection(connection)
        except psycopg.Error:
            # Whatever cut this one off most likely cut them all.
            if self._pool is not None:
                self._pool.drain()
            raise

    def _was_committed(self, number: str | None, recovered_at: datetime | None) -> bool:
        give_up_at = time.monotonic() + FATE_SECONDS
        while time.monotonic() < give_up_at:
            # Not one of the pool: those may all be held by threads that are asking the same.
            with suppress(psycopg.Error), closing(connect(self._url)) as connection:
                if connection.recovered_at != recovered_at:
                    # After a crash, others get the numbers of those that it cut off.
                    return False
                asked = connection.execute("SELECT pg_xact_status(%s::text::xid8)", (number,))
                (status,) = _one(asked)
                if status != "in progress":
                    return bool(status == "committed")
            time.sleep(0.05)
        return False


def connect(url: str) -> Connection:
    """Open a connection outside of any pool, that commits nothing by itself.

    Raises AddressInvalid, and psycopg.Error.
    """
    _require_readable(url)
    try:
        connection = Connection.connect(url, connect_timeout=CONNECT_SECONDS)
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        raise AddressInvalid from None
    try:
        connection.autocommit = True
        _configure(connection)
        # Who has waited for a lock is to see what the others have done.
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.autocommit = False
    except BaseException:
        connection.close()
        raise
    return connection


def name_of(url: str) -> str:
    """Say which database an address leads to: its host, port, name and user, and no password.

    What the address leaves out is taken from the environment of libpq, as a connection takes it.
    Raises AddressInvalid.
    """
    _require_readable(url)
    given = conninfo_to_dict(url)
    if "service" not in given:
        for option in Conninfo.get_defaults():
            if option.val:
                given.setdefault(option.keyword.decode(), option.val.decode())
    return make_conninfo(**{each: str(given[each]) for each in _SHOWN if each in given})


def _require_readable(url: str) -> None:
    """Raise AddressInvalid for an address that cannot be read, or is not read as it is meant."""
    try:
        conninfo_to_dict(url)
    except (psycopg.ProgrammingError, UnicodeEncodeError):
        raise AddressInvalid from None
    if not _IS_READ_AS_MEANT.fullmatch(url):
        raise AddressInvalid


@contextmanager
def translated() -> Iterator[None]:
    """Raise ServiceUnavailable in place of the errors that mean it; others pass through."""
    with _translated(writing=True):
        yield


@contextmanager
def _translated(*, writing: bool) -> Iterator[None]:
    try:
        yield
    except _CONFLICTS as error:
        raise Conflict from error
    except ReadOnly as error:
        if not writing:
            raise RuntimeError("this unit of work may not write") from error
        # The server is a standby, or about to become one.
        raise ServiceUnavailable from error
    except _UNAVAILABLE as error:
        raise ServiceUnavailable from error


def _configure(connection: Connection) -> None:
    # The domain keeps UUIDs as text, and the rows of its records JSON.
    connection.adapters.register_loader("uuid", TextLoader)
    connection.adapters.register_loader("jsonb", TextLoader)
    *_, connection.recovered_at = _one(connection.execute(_CONFIGURE.encode()))


@cache
def _with_places_of_psycopg(statement: str) -> bytes:
    return _PLACE.sub(r"%(\1)s", statement).encode()


def _one(cursor: psycopg.Cursor[TupleRow]) -> TupleRow:
    row = cursor.fetchone()
    assert row is not None
    return row
