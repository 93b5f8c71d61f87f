"""Several machines on one PostgreSQL server, while parts of the installation fail."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from threading import Event
from typing import Final
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import TOKEN_ID, a_uuid
from domain.errors import ServiceUnavailable
from domain.identifiers import CenterId
from tests.adapters.postgresql.by_hand import cut_off, execute
from tests.builders import a_center, a_session
from tests.entrypoints.load import CLIENTS, Aftermath, Client, Clients, Machines, look_at
from tests.entrypoints.postgresql_outages import crashed, hanging, stopped
from tests.postgresql import PostgresqlServer, new_database, standby_of
from tests.waiting import wait_until

MACHINES: Final = 2
ANSWERS: Final = 15
"""How many requests are answered between two faults."""


@pytest.fixture
def server(stoppable_postgresql: PostgresqlServer) -> PostgresqlServer:
    return stoppable_postgresql


def ask_all(machines: Machines, name: str) -> Clients:
    """Send add-card requests to every machine from many clients at once, without retries."""
    clients = Clients(machines, name, 2 * CLIENTS)

    def ask(number: int) -> None:
        for turn in range(len(machines.each)):
            clients.each[number].try_to_add_card((number + turn) % len(machines.each))

    with closing(clients):
        at_once(len(clients.each), ask)
    return clients


# Shows I1, F15.
def test_killing_a_machine_or_the_database_neither_loses_nor_duplicates_a_card(
    server: PostgresqlServer, tmp_path: Path
) -> None:
    def go_on(counted: Callable[[], int], more: int = ANSWERS) -> None:
        before = counted()
        wait_until(lambda: counted() >= before + more)

    def answered() -> int:
        return load.fates["answered"]

    with (
        new_database(server.url) as url,
        closing(Machines(tmp_path, url, machines=MACHINES)) as machines,
    ):
        machines.start()
        load, stop = Clients(machines, "load", CLIENTS), Event()
        killed = machines.each[0]
        with closing(load), load.doing(lambda client: client.add_cards_until(stop.is_set), stop):
            go_on(answered)
            killed.kill()
            go_on(answered)
            killed.start()
            killed.wait_until_ready()
            go_on(lambda: load.answered_by(0), CLIENTS)
            cut_off(machines.url)
            go_on(answered)
            with hanging(server):
                go_on(lambda: load.fates["refused"], CLIENTS)
            machines.wait_until_ready()
            go_on(answered)

        # Later requests notice nothing of it, also when all connections are cut off once more.
        after = ask_all(machines, "after")
        cut_off(machines.url)
        after_another = ask_all(machines, "another")

        assert [machine.stop() for machine in machines.each] == [0] * MACHINES
        fates = load.fates
        assert load.unexpected == []
        assert fates["sent"] == fates["answered"] + fates["refused"] + fates["cut off"]
        assert fates["cut off"] > 0
        for calm in (after.fates, after_another.fates):
            assert calm.keys() == {"sent", "answered"}
        assert look_at(machines, load, after, after_another) == Aftermath()
        assert [line for machine in machines.each for line in machine.faults()] == []


# Shows F18.
def test_a_machine_under_load_stays_alive_while_postgresql_is_unavailable(
    server: PostgresqlServer, tmp_path: Path
) -> None:
    stop, is_away, statuses = Event(), Event(), list[int]()

    def hammer(client: Client) -> None:
        while not stop.is_set():
            began_away = is_away.is_set()
            status = client.try_to_add_card(0)
            if began_away and is_away.is_set():
                statuses.append(status)

    with (
        new_database(server.url) as url,
        closing(Machines(tmp_path, url, machines=1)) as machines,
    ):
        machines.start()
        (machine,) = machines.each
        clients = Clients(machines, "hammer", 2 * CLIENTS)
        with closing(clients), clients.doing(hammer, stop):
            wait_until(lambda: clients.fates["answered"] >= ANSWERS)
            with stopped(server):
                is_away.set()
                statuses.clear()
                while len(statuses) < ANSWERS:
                    assert machine.status("/healthz") == 200
                    time.sleep(0.05)
                assert machine.status("/readyz") == 503
                assert set(statuses) == {503}
                is_away.clear()
            machines.wait_until_ready()

        # The same process, without a restart.
        assert ask_all(machines, "after").fates.keys() == {"sent", "answered"}
        assert machine.stop() == 0


# Shows F52.
def test_a_postgresql_standby_is_not_used_until_it_is_promoted(server: PostgresqlServer) -> None:
    with new_database(server.url) as url, standby_of(server, "db2") as standby:
        there = urlsplit(standby.url)._replace(path=urlsplit(url).path).geturl()
        with closing(PostgresqlStorage(there)) as storage:

            def has_no_session() -> bool:
                with storage.read() as unit:
                    return unit.sessions.get(TOKEN_ID) is None

            with capture_logs() as lines, pytest.raises(ServiceUnavailable):
                has_no_session()
            assert [line["reason"] for line in lines] == ["the server is a standby"]

            def is_used() -> bool:
                with suppress(ServiceUnavailable):
                    return has_no_session()
                return False

            execute(standby.url, "SELECT pg_promote()")
            wait_until(is_used)


# Shows F16.
def test_a_commit_lost_in_a_crash_is_not_confused_with_a_later_commit_with_the_same_id(
    server: PostgresqlServer,
) -> None:
    with new_database(server.url) as url, closing(PostgresqlStorage(url)) as storage:
        with storage.write() as unit:
            unit.sessions.add(a_session())
            with crashed(server):
                pass
            # The crash lost the transaction, so PostgreSQL gives its number to another.
            with closing(PostgresqlStorage(url)) as other:
                for number in range(20):
                    with other.write() as later:
                        later.centers.put_many([a_center(id=CenterId(a_uuid(number)))])
                        later.commit()
            with pytest.raises(ServiceUnavailable):
                unit.commit()

        with storage.read() as looking:
            assert looking.sessions.get(TOKEN_ID) is None
