"""Three machines on one PostgreSQL: what clients see while parts of it fail, and what remains."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp.contract.samples import TOKEN_ID, a_uuid
from domain.errors import ServiceUnavailable
from domain.identifiers import CenterId
from tests.adapters.postgresql.by_hand import cut_off
from tests.builders import a_center, a_session
from tests.entrypoints.load import Aftermath, Fates, look_at
from tests.entrypoints.several_machines import (
    OUTAGES,
    ask_all,
    crashed,
    live_through,
    three_machines,
    watch,
)
from tests.postgresql import PostgresqlServer, new_database, own_server

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresqlServer]:
    """Give a server that every test may stop, and leaves running."""
    with own_server() as server:
        yield server


@pytest.mark.parametrize("outage", OUTAGES)
def test_nothing_is_lost_or_doubled_when_a_machine_is_killed_and_postgresql_is_away(
    outage: str, server: PostgresqlServer, tmp_path: Path
) -> None:
    with three_machines(tmp_path, server) as machines:
        load = live_through(machines, server, OUTAGES[outage], answers=100)

        # Whoever asks from now on sees nothing of what has been.
        after = ask_all(machines, "after")
        cut_off(machines.url)
        after_another = ask_all(machines, "another")

        assert [machine.stop() for machine in machines.each] == [0, 0, 0]
        fates = load.fates
        assert load.unexpected == []
        assert fates.sent == fates.answered + fates.refused + fates.cut_off
        assert fates.refused > 0
        assert fates.cut_off > 0
        for calm in (after.fates, after_another.fates):
            assert calm == Fates(sent=calm.sent, answered=calm.sent)
        assert look_at(machines, load, after, after_another) == Aftermath()
        assert [line for machine in machines.each for line in machine.faults()] == []


@pytest.mark.parametrize("outage", ["stopped", "hanging"])
def test_while_postgresql_is_away_a_hammered_machine_refuses_and_stays_alive(
    outage: str, server: PostgresqlServer, tmp_path: Path
) -> None:
    with three_machines(tmp_path, server) as machines:
        watched = watch(machines, server, OUTAGES[outage], enough=lambda refused, _: refused >= 100)

        assert {each.status for each in watched.adding} == {503}
        assert {each.status for each in watched.healthz} == {200}
        assert watched.readyz.status == 503
        # The same process, without a restart.
        after = ask_all(machines, "after").fates
        assert after == Fates(sent=after.sent, answered=after.sent)
        assert [machine.stop() for machine in machines.each] == [0, 0, 0]


def test_a_commit_that_a_crash_cut_off_is_not_taken_for_that_of_whoever_got_its_number(
    server: PostgresqlServer,
) -> None:
    with new_database(server.url) as url, closing(PostgresqlStorage(url)) as storage:
        with storage.write() as unit:
            unit.sessions.add(a_session())
            with crashed(server):
                pass
            # PostgreSQL has forgotten the number with the transaction, and gives it out again.
            with closing(PostgresqlStorage(url)) as other:
                for number in range(20):
                    with other.write() as later:
                        later.centers.put_many([a_center(id=CenterId(a_uuid(number)))])
                        later.commit()
            with pytest.raises(ServiceUnavailable):
                unit.commit()

        with storage.read() as looking:
            assert looking.sessions.get(TOKEN_ID) is None
