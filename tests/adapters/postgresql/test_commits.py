"""In-doubt commits: the connection is lost before the response, so the outcome is looked up."""

from __future__ import annotations

from contextlib import closing

import psycopg
import pytest

from adapters.postgresql import connection
from adapters.postgresql.connection import Connection, connect
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import TOKEN_ID
from domain.errors import ServiceUnavailable
from domain.storage import WriteUnit
from tests.adapters.postgresql.by_hand import execute, is_waiting
from tests.adapters.postgresql.relay import Relay, relay_to
from tests.builders import a_session
from tests.postgresql import PostgresqlServer, new_database, waiting_for
from tests.waiting import wait_until


def add(unit: WriteUnit) -> str:
    unit.sessions.add(a_session())
    unit.commit()
    return "added"


def has_session(storage: PostgresqlStorage) -> bool:
    with storage.read() as unit:
        return unit.sessions.get(TOKEN_ID) is not None


# Shows F16.
def test_a_commit_whose_response_was_lost_succeeds_if_the_server_committed(
    relay: Relay, relayed: PostgresqlStorage
) -> None:
    relay.after_commit = relay.cut
    assert relayed.transact(add) == "added"
    assert has_session(relayed)


def test_a_commit_succeeds_on_a_connection_that_a_pooler_kept_through_a_crash(
    stoppable_postgresql: PostgresqlServer,
) -> None:
    with (
        new_database(stoppable_postgresql.url) as url,
        relay_to(url) as relay,
        closing(PostgresqlStorage(relay.url)) as relayed,
    ):
        assert not has_session(relayed)
        # Like crash recovery of the whole server, but the connection stays, as one to a pooler does.
        execute(url, "SELECT pg_stat_reset_shared('bgwriter')")
        relay.after_commit = relay.cut
        assert relayed.transact(add) == "added"


# Shows F16.
def test_a_commit_that_never_reached_the_server_raises_an_error(
    relay: Relay, relayed: PostgresqlStorage
) -> None:
    relay.before_commit = relay.cut
    with pytest.raises(ServiceUnavailable):
        relayed.transact(add)
    assert not has_session(relayed)
    assert relayed.transact(add) == "added"


# Shows F16.
@pytest.mark.parametrize("was_kept", [True, False])
def test_a_commit_with_an_unknown_outcome_is_reported_as_unavailable(
    url: str,
    relay: Relay,
    relayed: PostgresqlStorage,
    was_kept: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(connection, "IN_DOUBT_SECONDS", 0.2)
    if was_kept:
        relay.after_commit = relay.stop
    else:
        relay.before_commit = relay.stop
    with pytest.raises(ServiceUnavailable):
        relayed.transact(add)
    with closing(PostgresqlStorage(url)) as storage:
        assert has_session(storage) is was_kept


def test_the_storage_waits_for_the_outcome_of_a_commit_that_is_still_in_progress(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    execute(
        own_url,
        """
        CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS
            'BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NULL; END';
        CREATE CONSTRAINT TRIGGER wait AFTER INSERT ON card_sessions
            DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION wait()
        """,
    )
    looked_up: list[str] = []

    def count_and_connect(address: str) -> Connection:
        looked_up.append(address)
        if len(looked_up) == 3:
            other.rollback()
        return connect(address)

    def cut_while_it_waits() -> None:
        wait_until(lambda: is_waiting(own_url))
        relay.cut()

    def add_or_cut(number: int) -> None:
        if number:
            cut_while_it_waits()
        else:
            assert relayed.transact(add) == "added"

    monkeypatch.setattr(connection, "connect", count_and_connect)
    with (
        psycopg.connect(own_url) as other,
        relay_to(own_url) as relay,
        closing(PostgresqlStorage(relay.url)) as relayed,
    ):
        other.execute("SELECT pg_advisory_xact_lock(1)")
        at_once(2, add_or_cut)
        assert len(looked_up) >= 3
        assert has_session(relayed)


# Shows F51.
@pytest.mark.parametrize("ended_by", ["pg_cancel_backend", "pg_terminate_backend"])
def test_a_commit_fails_if_an_operator_cancels_its_wait_for_a_standby(
    stoppable_postgresql: PostgresqlServer, ended_by: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "IN_DOUBT_SECONDS", 0.5)
    waits = "FROM pg_stat_activity WHERE wait_event = 'SyncRep'"

    def end_the_wait() -> None:
        wait_until(lambda: execute(url, f"SELECT 1 {waits}"))
        execute(url, f"SELECT {ended_by}(pid) {waits}")

    def add_or_end(number: int) -> None:
        if number:
            end_the_wait()
        else:
            with pytest.raises(ServiceUnavailable):
                storage.transact(add)

    with (
        new_database(stoppable_postgresql.url) as url,
        closing(PostgresqlStorage(url)) as storage,
    ):
        # The server sends a warning, which a role may not switch off.
        execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET client_min_messages = error")
        assert not has_session(storage)
        with waiting_for(url, "nobody"):
            at_once(2, add_or_end)
        # Only this server has it, and would lose it together with its disk.
        assert has_session(storage)
