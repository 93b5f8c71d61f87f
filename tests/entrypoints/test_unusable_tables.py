"""The worker and `cardonfile reconcile` while one table cannot be used: the rest goes on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Final

import pytest
from structlog.testing import capture_logs

from adapters.sqlite.connection import connect
from domain.errors import ServiceUnavailable
from domain.events.event import ENDPOINT_TYPES
from domain.sessions.session import CardSession
from domain.worker.heartbeat import WorkerState
from entrypoints.worker.job_runner import Chore
from entrypoints.worker.reconcile import reconcile_until_idle
from entrypoints.worker.worker import Worker
from tests.adapters.postgresql.by_hand import execute
from tests.event_receiver import EventReceiver
from tests.installation import Installation
from tests.postgresql import new_database
from tests.waiting import wait_until

LOOPBACK: Final = "127.0.0.0/8"
AWAY: Final = "reconciler_without_storage"


@dataclass(frozen=True, kw_only=True)
class Machine:
    """An installation with an endpoint for events, whose tables a test can break."""

    installation: Installation
    receiver: EventReceiver
    breaks: Callable[..., None]
    """Break a table: give it bad pages, or take a privilege for it away, by default SELECT."""

    def __post_init__(self) -> None:
        add = self.installation.container.add_event_endpoint()
        add(url=self.receiver.url, types=ENDPOINT_TYPES)

    def has_due_session(self) -> CardSession:
        """Return a session without a card, whose end has come."""
        session = self.installation.add_card()
        self.installation.clock.advance(timedelta(minutes=30))
        return session

    def has_done(self, session: CardSession) -> bool:
        """Return whether a session has ended, and its event is delivered."""
        return session.token_id in [
            each.content["data"]["token_id"] for each in self.receiver.received
        ]

    def has_heartbeat(self) -> bool:
        """Return whether a worker runs and has left a heartbeat."""
        with self.installation.storage.read() as unit:
            seen = unit.workers.seen(self.installation.clock.now())
        return WorkerState.RUNNING in [each.state for each in seen]


@contextmanager
def on_sqlite(folder: Path) -> Iterator[Machine]:
    installation = Installation(folder, CARDONFILE_EVENT_NETWORKS=LOOPBACK)

    def breaks(table: str, _: str = "") -> None:
        # Closed, so that all pages are in the file and none in a cache.
        installation.storage.close()
        with closing(connect(installation.database, busy_timeout_seconds=0)) as db:
            ((page_size,),) = db.execute("PRAGMA page_size")
            pages = db.execute(
                "SELECT rootpage FROM sqlite_master WHERE tbl_name = ?", (table,)
            ).fetchall()
        with installation.database.open("r+b") as file:
            for (page,) in pages:
                file.seek((page - 1) * page_size)
                file.write(b"\xff" * page_size)

    with closing(installation), EventReceiver() as receiver:
        yield Machine(installation=installation, receiver=receiver, breaks=breaks)


@contextmanager
def on_postgresql(folder: Path, server: str) -> Iterator[Machine]:
    with new_database(server) as url:
        clerk = f"clerk_of_{url.rpartition('/')[2]}"
        execute(url, f"CREATE ROLE {clerk} LOGIN")
        for what in ("TABLES", "SEQUENCES"):
            execute(url, f"GRANT ALL ON ALL {what} IN SCHEMA public TO {clerk}")
        installation = Installation(
            folder,
            CARDONFILE_DATABASE_URL=url.replace("postgres@", f"{clerk}@", 1),
            CARDONFILE_FAKE_PSP_DATABASE=str(folder / "fake-psp.db"),
            CARDONFILE_EVENT_NETWORKS=LOOPBACK,
        )

        def breaks(table: str, privilege: str = "SELECT") -> None:
            execute(url, f"REVOKE {privilege} ON {table} FROM {clerk}")

        try:
            with closing(installation), EventReceiver() as receiver:
                yield Machine(installation=installation, receiver=receiver, breaks=breaks)
        finally:
            execute(url, f"DROP OWNED BY {clerk}")
            execute(url, f"DROP ROLE {clerk}")


@pytest.fixture(params=["sqlite", "postgresql"])
def machine(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Machine]:
    """Return an installation on each storage in turn."""
    if request.param == "sqlite":
        opened = on_sqlite(tmp_path)
    else:
        opened = on_postgresql(tmp_path, request.getfixturevalue("postgresql_server"))
    with opened as machine:
        yield machine


@contextmanager
def working(installation: Installation) -> Iterator[None]:
    worker = Worker(installation.container, base_url="http://127.0.0.1:1")
    worker.start()
    try:
        yield
    finally:
        worker.stop()


# Shows F46.
def test_a_chore_that_fails_stops_no_work(machine: Machine) -> None:
    machine.breaks("refused_cards")
    # What deletes old records reads the table too, and may be first.
    works_after_a_failure_of(machine, "find_card_testing", "forget_old_records")


def test_a_role_that_may_not_delete_old_deliveries_sends_new_ones(
    tmp_path: Path, postgresql_server: str
) -> None:
    with on_postgresql(tmp_path, postgresql_server) as machine:
        machine.breaks("event_deliveries", "DELETE")
        works_after_a_failure_of(machine, "forget_old_records")


def works_after_a_failure_of(machine: Machine, *chores: str) -> None:
    """Check that a worker goes on after one of these chores has failed, and logs it once."""
    with capture_logs() as lines, working(machine.installation):
        wait_until(lambda: [line for line in lines if line["event"] == AWAY])
        # Due after the chore has failed.
        session = machine.has_due_session()
        wait_until(lambda: machine.has_done(session))
        wait_until(machine.has_heartbeat)

    (line,) = (line for line in lines if line["log_level"] == "error")
    assert line["work"] in chores


# Shows F46.
def test_a_kind_of_work_that_cannot_be_taken_stops_no_other_but_the_heartbeat(
    machine: Machine,
) -> None:
    machine.breaks("discards")

    with capture_logs() as lines, working(machine.installation):
        wait_until(lambda: [line for line in lines if line["event"] == AWAY])
        session = machine.has_due_session()
        wait_until(lambda: machine.has_done(session))
        assert not machine.has_heartbeat()

    (line,) = (line for line in lines if line["log_level"] == "error")
    # What deletes old records reads the table too, and may be first.
    assert line["work"] in ("discards", "forget_old_records")


def test_the_command_does_the_rest_before_it_fails(machine: Machine) -> None:
    session = machine.has_due_session()
    machine.breaks("discards")

    def fail() -> None:
        raise ServiceUnavailable

    with pytest.raises(ServiceUnavailable):
        reconcile_until_idle(
            machine.installation.container, [Chore("fail", timedelta(hours=1), fail)]
        )

    assert machine.has_done(session)
