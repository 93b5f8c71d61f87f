from __future__ import annotations

import logging
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Barrier, Event, Lock

import psycopg
import pytest
from psycopg_pool import ConnectionPool, PoolTimeout
from structlog.testing import capture_logs

from adapters.postgresql import connection
from adapters.postgresql.address import AddressInvalid, name_of
from adapters.postgresql.connection import connect
from adapters.postgresql.migrations import migrate
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import TOKEN_ID, a_uuid
from domain.errors import ServiceUnavailable
from domain.identifiers import TokenId
from domain.storage import UnitOfWork, WriteUnit
from entrypoints.databases import cause_of
from tests.adapters.postgresql.by_hand import cut_off, execute, set_default, states
from tests.adapters.postgresql.relay import Relay
from tests.builders import a_session
from tests.concurrency import elsewhere
from tests.databases import transaction_of
from tests.postgresql import PostgresqlServer, new_database
from tests.waiting import LIMIT_SECONDS, wait_until

NOBODY_LISTENS = "127.0.0.1:1"
SECRET = "s3same"


def add_session(storage: PostgresqlStorage, number: int = 21) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session(token_id=TokenId(a_uuid(number))))
        unit.commit()


def has_session(storage: PostgresqlStorage) -> bool:
    with storage.read() as unit:
        return unit.sessions.get(TOKEN_ID) is not None


def open_connections(storage: PostgresqlStorage, number: int) -> None:
    """Fill the pool with this number of connections."""
    barrier = Barrier(number)

    def hold(_: int) -> None:
        with storage.read():
            barrier.wait(LIMIT_SECONDS)

    at_once(number, hold)


@contextmanager
def waits_of(seconds: float) -> Iterator[None]:
    """Limit the waits for connections and for responses to connection checks."""
    with pytest.MonkeyPatch.context() as patch:
        for name in ("AWAY_SECONDS", "CHECK_SECONDS", "CONNECT_SECONDS"):
            patch.setattr(connection, name, seconds)
        yield


def is_back(storage: PostgresqlStorage) -> bool:
    with suppress(ServiceUnavailable):
        storage.check()
        return True
    return False


def is_usable(storage: PostgresqlStorage) -> bool:
    with suppress(ServiceUnavailable), storage.read():
        return True
    return False


USES: dict[str, Callable[[PostgresqlStorage], object]] = {
    "read": has_session,
    "write": add_session,
    "check": lambda storage: storage.check(),
}


class TestSettings:
    def test_each_postgresql_connection_has_the_settings_that_keep_records_safe(
        self, own_url: str, own_storage: PostgresqlStorage
    ) -> None:
        for each in ("default_transaction_isolation = serializable", "TimeZone = 'Asia/Tokyo'"):
            set_default(own_url, each)
        with own_storage.write() as unit:
            writing = self.settings(unit)
        with own_storage.read() as reader:
            reading = self.settings(reader)
        assert writing == {
            "TimeZone": "UTC",
            "lock_timeout": "5s",
            "idle_in_transaction_session_timeout": "1min",
            "synchronous_commit": "on",
            "transaction_isolation": "read committed",
        }
        assert reading == writing | {"transaction_isolation": "repeatable read"}

    def settings(self, unit: UnitOfWork) -> dict[str, object]:
        return {
            name: transaction_of(unit).one(f"SHOW {name}")[0]
            for name in (
                *("TimeZone", "lock_timeout", "idle_in_transaction_session_timeout"),
                *("synchronous_commit", "transaction_isolation"),
            )
        }

    # Shows I1, F7.
    @pytest.mark.parametrize(("default", "in_force"), [("off", "on"), ("remote_apply",) * 2])
    def test_commits_are_synchronous_even_if_the_default_of_the_server_is_asynchronous(
        self, own_url: str, own_storage: PostgresqlStorage, default: str, in_force: str
    ) -> None:
        set_default(own_url, f"synchronous_commit = {default}")
        with own_storage.write() as unit:
            assert transaction_of(unit).one("SHOW synchronous_commit") == (in_force,)


class TestPool:
    def test_the_connection_pool_opens_connections_when_needed_up_to_a_limit(
        self, own_url: str
    ) -> None:
        with closing(PostgresqlStorage(own_url, connections=3)) as storage:
            assert states(own_url) == []
            at_once(6, lambda number: add_session(storage, number))
            open_connections(storage, 3)
            # The connection that looked before may still be ending.
            wait_until(lambda: len(states(own_url)) == 3)
            storage.close()
            wait_until(lambda: not states(own_url))

    # Shows F13.
    def test_a_unit_of_work_leaves_no_transaction_open(
        self, own_url: str, own_storage: PostgresqlStorage
    ) -> None:
        def add_and_fail(unit: WriteUnit) -> None:
            unit.sessions.add(a_session())
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            own_storage.transact(add_and_fail)
        has_session(own_storage)
        add_session(own_storage)
        assert set(states(own_url)) == {"idle"}

    def test_an_exhausted_connection_pool_does_not_count_as_an_outage_of_the_server(
        self, url: str
    ) -> None:
        held, refused, released = Barrier(3), Event(), Event()
        with closing(PostgresqlStorage(url, connections=2)) as storage:

            def hold() -> None:
                with storage.read():
                    held.wait(LIMIT_SECONDS)
                    assert released.wait(LIMIT_SECONDS)

            def is_refused() -> None:
                held.wait(LIMIT_SECONDS)
                with waits_of(0.1), pytest.raises(ServiceUnavailable):
                    has_session(storage)
                queued = times_queued()
                refused.set()
                wait_until(lambda: times_queued() == queued + 2)
                released.set()

            def times_queued() -> int:
                assert storage._connections._pool is not None
                return storage._connections._pool.get_stats()["requests_queued"]

            def waits() -> None:
                assert refused.wait(LIMIT_SECONDS)
                has_session(storage)

            open_connections(storage, 2)
            work = [hold, hold, is_refused, waits, waits]
            at_once(5, lambda number: work[number]())

    def test_the_wait_for_a_database_connection_is_measured_even_if_no_connection_is_free(
        self, url: str
    ) -> None:
        waits: list[float] = []
        with closing(PostgresqlStorage(url, connections=1, on_wait=waits.append)) as storage:

            def read_in_vain() -> None:
                with waits_of(0.1), pytest.raises(ServiceUnavailable):
                    has_session(storage)

            with storage.read():
                elsewhere(read_in_vain)
        assert len(waits) == 2
        assert waits[-1] >= 0.1


class TestOutage:
    # Shows F15.
    def test_a_broken_connection_is_replaced_before_the_next_unit_of_work(self, url: str) -> None:
        with closing(PostgresqlStorage(url, connections=4)) as storage:
            for use in USES.values():
                open_connections(storage, 4)
                cut_off(url)
                use(storage)
            open_connections(storage, 4)
            cut_off(url)
            at_once(4, lambda number: add_session(storage, 100 + number))

    @pytest.mark.parametrize("cut_before", ["statement", "commit"])
    def test_a_unit_of_work_fails_if_its_connection_is_lost(
        self, url: str, storage: PostgresqlStorage, cut_before: str
    ) -> None:
        def add(unit: WriteUnit) -> None:
            calls.append(unit)
            unit.sessions.add(a_session())
            cut_off(url)
            if cut_before == "statement":
                unit.sessions.get(TOKEN_ID)
            unit.commit()

        calls: list[WriteUnit] = []
        with pytest.raises(ServiceUnavailable):
            storage.transact(add)
        assert len(calls) == 1
        assert not has_session(storage)
        add_session(storage)

    def test_a_wrong_address_of_the_database_server_is_reported_as_unavailable(
        self, url: str
    ) -> None:
        nowhere = f"postgresql://nobody@{NOBODY_LISTENS}/nowhere"
        # The server has no certificate.
        for address in (nowhere, f"{url}_not", f"{url}?sslmode=verify-full"):
            with closing(PostgresqlStorage(address)) as storage:
                for use in USES.values():
                    with waits_of(0.1), pytest.raises(ServiceUnavailable):
                        use(storage)

    def test_the_database_server_is_used_again_after_a_short_outage(
        self, relay: Relay, relayed: PostgresqlStorage
    ) -> None:
        add_session(relayed)
        relay.stop()
        for use in USES.values():
            with waits_of(0.1), pytest.raises(ServiceUnavailable):
                use(relayed)
        relay.start()
        wait_until(lambda: is_back(relayed))
        at_once(8, lambda number: add_session(relayed, 100 + number))

    def test_the_database_server_is_used_again_after_a_long_outage(
        self, relay: Relay, relayed: PostgresqlStorage
    ) -> None:
        relay.stop()
        with waits_of(0.005):
            for _ in range(120):
                assert not is_back(relayed)
        pool = relayed._connections._pool
        assert pool is not None
        # The pool has now given up, and connects again only for the next unit.
        wait_until(lambda: pool.get_stats()["pool_size"] == 0)
        relay.start()
        wait_until(lambda: is_back(relayed))

    # Shows F18.
    def test_only_one_thread_waits_for_a_connection_while_the_server_is_unavailable(
        self, relay: Relay, relayed: PostgresqlStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        relay.stop()
        with waits_of(0.1):
            assert not is_back(relayed)
        waiting: list[object] = []
        refused: list[object] = []
        all_but_one_refused = Event()

        def wait_for_the_others(pool: ConnectionPool, _: float) -> None:
            waiting.append(pool)
            assert all_but_one_refused.wait(LIMIT_SECONDS)
            raise PoolTimeout

        def ask(number: int) -> None:
            with pytest.raises(ServiceUnavailable):
                add_session(relayed, number)
            with counting:
                refused.append(number)
                if len(refused) == 7:
                    all_but_one_refused.set()

        counting = Lock()
        with monkeypatch.context() as patch:
            patch.setattr(ConnectionPool, "getconn", wait_for_the_others)
            at_once(8, ask)
        assert len(waiting) == 1
        relay.start()
        wait_until(lambda: is_back(relayed))

    def test_a_database_server_that_hangs_is_reported_as_unavailable(
        self, relay: Relay, relayed: PostgresqlStorage
    ) -> None:
        with relayed.write() as unit:
            unit.sessions.add(a_session())
            relay.pause()
            transaction_of(unit).connection.statement_seconds = 0.1
            with pytest.raises(psycopg.OperationalError):
                unit.sessions.get(TOKEN_ID)
        for use in USES.values():
            with waits_of(0.1), pytest.raises(ServiceUnavailable):
                use(relayed)
        relay.resume()
        wait_until(lambda: is_back(relayed))
        assert not has_session(relayed)

    def test_the_storage_check_fails_for_a_database_without_tables(
        self, postgresql_server: str
    ) -> None:
        with (
            new_database(postgresql_server, migrated=False) as url,
            closing(PostgresqlStorage(url)) as storage,
            pytest.raises(ServiceUnavailable),
        ):
            storage.check()

    # Shows F8.
    @pytest.mark.parametrize(
        ("setting", "uses"),
        [
            ("default_transaction_read_only = on", ("write", "check")),
            # This works like a full disk, but only for one database.
            ("temp_file_limit = 0", ("check",)),
        ],
    )
    def test_writes_to_a_read_only_database_server_are_reported_as_unavailable(
        self, own_url: str, own_storage: PostgresqlStorage, setting: str, uses: tuple[str, ...]
    ) -> None:
        set_default(own_url, setting)
        for use in uses:
            with pytest.raises(ServiceUnavailable):
                USES[use](own_storage)
        assert not has_session(own_storage)

    # Shows F8.
    def test_a_server_with_a_full_disk_is_reported_as_unavailable(
        self, own_url: str, own_storage: PostgresqlStorage
    ) -> None:
        execute(
            own_url,
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql"
            " AS $$ BEGIN RAISE 'could not extend file' USING ERRCODE = 'disk_full'; END $$;"
            " CREATE TRIGGER full_disk BEFORE INSERT ON card_sessions EXECUTE FUNCTION refuse()",
        )
        with pytest.raises(ServiceUnavailable):
            add_session(own_storage)
        assert not has_session(own_storage)
        execute(own_url, "DROP TRIGGER full_disk ON card_sessions")
        add_session(own_storage)
        assert has_session(own_storage)

    def test_tables_without_permission_are_reported_as_unavailable(self, url: str) -> None:
        clerk = f"clerk_of_{url.rpartition('/')[2]}"
        execute(url, f"CREATE ROLE {clerk} LOGIN")
        try:
            as_clerk = url.replace("postgres@", f"{clerk}@", 1)
            with closing(PostgresqlStorage(as_clerk)) as storage:
                for name in ("read", "write", "check"):
                    with pytest.raises(ServiceUnavailable):
                        USES[name](storage)
        finally:
            execute(url, f"DROP ROLE {clerk}")

    def test_a_transaction_that_the_server_refuses_does_not_count_as_an_outage(
        self, url: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        refused = "; DO $$ BEGIN RAISE 'out of memory' USING ERRCODE = '53200'; END $$"
        monkeypatch.setattr(connection, "_BEGIN_IDENTIFIED", connection._BEGIN_IDENTIFIED + refused)
        with closing(PostgresqlStorage(url)) as storage, capture_logs() as logs:
            with pytest.raises(ServiceUnavailable) as raised:
                add_session(storage)

            assert isinstance(raised.value.__cause__, psycopg.errors.OutOfMemory)
            assert not has_session(storage)
        assert logs == []

    def test_an_error_in_an_sql_statement_does_not_count_as_an_outage(
        self, storage: PostgresqlStorage
    ) -> None:
        with pytest.raises(psycopg.errors.UndefinedTable), storage.write() as unit:
            transaction_of(unit).execute("SELECT * FROM centres")
        add_session(storage)
        with pytest.raises(psycopg.errors.UniqueViolation), storage.write() as unit:
            transaction_of(unit).execute("INSERT INTO card_sessions SELECT * FROM card_sessions")


def test_a_unit_of_work_with_a_failed_statement_cannot_be_committed(
    storage: PostgresqlStorage,
) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        with suppress(psycopg.errors.UndefinedTable):
            transaction_of(unit).execute("SELECT * FROM centres")
        with pytest.raises(RuntimeError, match="an earlier statement"):
            unit.commit()
    assert not has_session(storage)


class TestReasons:
    """The reason of an outage is logged once while it lasts."""

    @pytest.fixture
    def server(self, stoppable_postgresql: PostgresqlServer) -> PostgresqlServer:
        return stoppable_postgresql

    def as_judy(self, server: PostgresqlServer, password: str) -> PostgresqlStorage:
        url = server.url.replace("postgres@", f"judy:{password}@", 1)
        return PostgresqlStorage(url, connections=2)

    def cause(self, storage: PostgresqlStorage) -> str:
        """Use a storage that is unavailable. Return the logged reason."""
        with waits_of(0.5), pytest.raises(ServiceUnavailable) as unavailable:
            storage.check()
        return str(cause_of(unavailable.value))

    def logged(self, storage: PostgresqlStorage, reason: str) -> str:
        """Use a storage until it fails for this reason, and once more. Return the log event."""
        with capture_logs() as lines:
            wait_until(lambda: reason in self.cause(storage))
            assert reason in self.cause(storage)
        assert SECRET not in repr(lines)
        (line,) = (line for line in lines if reason in line["reason"])
        return str(line["event"])

    def test_a_wrong_password_is_logged_as_the_reason_of_an_outage(
        self, server: PostgresqlServer
    ) -> None:
        with closing(self.as_judy(server, SECRET)) as storage:
            reason = 'password authentication failed for user "judy"'
            assert self.logged(storage, reason) == "database_away"

    def test_a_connection_limit_of_the_database_role_is_logged_as_the_reason_of_an_outage(
        self, server: PostgresqlServer
    ) -> None:
        execute(server.url, "ALTER ROLE judy CONNECTION LIMIT 1")
        with (
            closing(self.as_judy(server, "right")) as storage,
            closing(self.as_judy(server, "right")) as other,
            storage.read(),
        ):
            reason = 'too many connections for role "judy"'
            short = elsewhere(lambda: self.logged(storage, reason))
            assert short == "database_connections_used_up"
            assert self.logged(other, reason) == "database_away"
        execute(server.url, "ALTER ROLE judy CONNECTION LIMIT -1")

    def test_a_server_without_free_connections_is_logged_as_the_reason_of_an_outage(
        self, url: str
    ) -> None:
        with closing(PostgresqlStorage(url, connections=1)) as storage, storage.read():
            reason = "all 1 connections of this process are in use"
            event = elsewhere(lambda: self.logged(storage, reason))
            assert event == "database_connections_used_up"

    def test_a_database_server_that_hangs_is_logged_as_the_reason_of_an_outage(
        self, relay: Relay, relayed: PostgresqlStorage
    ) -> None:
        relay.pause()

        assert self.logged(relayed, "the server does not respond") == "database_away"
        relay.resume()

    def test_every_outage_of_the_server_is_logged_with_its_end(
        self, server: PostgresqlServer
    ) -> None:
        with closing(PostgresqlStorage(server.url)) as storage:
            for _ in range(2):
                assert is_usable(storage)
                server.stop()
                assert self.logged(storage, "Connection refused") == "database_away"
                server.start()
                with capture_logs() as lines:
                    wait_until(lambda: is_usable(storage))
                assert [line["event"] for line in lines] == ["database_back"]


class TestSecrets:
    # Shows S18.
    @pytest.mark.parametrize(
        "address",
        [
            f"postgresql://postgres:{SECRET}@{NOBODY_LISTENS}/nowhere",
            f"postgresql://postgres:{SECRET}%zz@{NOBODY_LISTENS}/nowhere",
            f"postgresql://postgres:{SECRET} {SECRET}@no host:port/nowhere",
            f"postgresql://postgres:not@{SECRET}@{NOBODY_LISTENS}/nowhere",
        ],
        ids=["away", "percent", "space", "at"],
    )
    def test_the_password_of_the_database_is_never_shown(
        self, address: str, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
    ) -> None:
        caplog.set_level(logging.DEBUG)
        shown: list[str] = []
        with closing(PostgresqlStorage(address)) as storage:
            for use in (storage.check, lambda: migrate(address)):
                with (
                    waits_of(0.1),
                    pytest.raises((ServiceUnavailable, AddressInvalid)) as refused,
                ):
                    use()
                shown += [repr(refused.value), *traceback.format_exception(refused.value)]
            shown += [repr(storage._connections), repr(storage._connections._pool)]
        assert not any(SECRET in each for each in (*shown, caplog.text, *capfd.readouterr()))

    @pytest.mark.parametrize(
        ("address", "shown"),
        [
            (f"postgresql://cards:{SECRET}@db:1/c", "host=db port=1 dbname=c user=cards"),
            (
                f"postgres://cards:{SECRET}@a:1,b:2/c?target_session_attrs=read-write",
                "host=a,b port=1,2 dbname=c user=cards",
            ),
            (
                f"postgresql://db/c?user=cards&password={SECRET}&sslpassword={SECRET}",
                "host=db port=5432 dbname=c user=cards",
            ),
            (f"postgresql:///?service=cards&password={SECRET}", "service=cards"),
            (f"postgresql://:{SECRET}@/", "host=from-env port=5432 dbname=from-env user=cards"),
        ],
        ids=["usual", "hosts", "query", "service", "environment"],
    )
    def test_the_name_of_a_database_omits_the_password(
        self, address: str, shown: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name, value in (("HOST", "from-env"), ("DATABASE", "from-env"), ("USER", "cards")):
            monkeypatch.setenv(f"PG{name}", value)
        monkeypatch.setenv("PGPASSWORD", SECRET)

        assert name_of(address) == shown

    def test_the_repr_or_log_of_a_connection_does_not_show_the_password(
        self, url: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        caplog.set_level(logging.DEBUG)
        with_password = url.replace("postgres@", f"postgres:{SECRET}@", 1)
        with closing(connect(with_password)) as connected:
            assert SECRET not in repr(connected)
        with closing(PostgresqlStorage(with_password)) as storage:
            add_session(storage)
            cut_off(url)
            add_session(storage, 22)
        assert SECRET not in caplog.text
