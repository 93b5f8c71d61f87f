"""A worker while one table cannot be used. All other work continues."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from adapters.sqlite.connection import connect
from domain.events.event import ENDPOINT_TYPES
from domain.worker.heartbeat import WorkerState
from entrypoints.worker.worker import Worker
from tests.event_receiver import EventReceiver
from tests.installation import Installation
from tests.waiting import wait_until


@pytest.fixture
def receiver() -> Iterator[EventReceiver]:
    with EventReceiver() as receiver:
        yield receiver


@pytest.fixture
def installation(tmp_path: Path, receiver: EventReceiver) -> Iterator[Installation]:
    """An installation that sends all events to the receiver."""
    with closing(Installation(tmp_path, CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")) as installation:
        add = installation.container.add_event_endpoint()
        add(url=receiver.url, types=ENDPOINT_TYPES)
        yield installation


def damage(installation: Installation, table: str) -> None:
    """Overwrite the first pages of a table and its indexes."""
    # Closed, so that all pages are in the file and none in a cache.
    installation.storage.close()
    with closing(connect(installation.database, busy_timeout_seconds=0)) as db:
        ((page_size,),) = db.execute("PRAGMA page_size")
        roots = "SELECT rootpage FROM sqlite_master WHERE tbl_name = ?"
        pages = db.execute(roots, (table,)).fetchall()
    with installation.database.open("r+b") as file:
        for (page,) in pages:
            file.seek((page - 1) * page_size)
            file.write(b"\xff" * page_size)


def has_heartbeat(installation: Installation) -> bool:
    """Return whether a worker runs and has left a heartbeat."""
    with installation.storage.read() as unit:
        seen = unit.workers.seen(installation.clock.now())
    return WorkerState.RUNNING in [each.state for each in seen]


@contextmanager
def working_after_a_failure_of(
    installation: Installation, receiver: EventReceiver, *works: str
) -> Iterator[None]:
    """Check that a worker continues after one of these works has failed, and logs that once."""
    worker = Worker(installation.container, base_url="http://127.0.0.1:1")
    with capture_logs() as lines:
        worker.start()
        try:
            wait_until(lambda: "reconciler_without_storage" in [line["event"] for line in lines])
            session = installation.add_card()
            installation.clock.advance(timedelta(minutes=30))
            wait_until(
                lambda: (
                    session.token_id
                    in [each.content["data"]["token_id"] for each in receiver.received]
                )
            )
            yield
        finally:
            worker.stop()
    (line,) = (line for line in lines if line["log_level"] == "error")
    assert line["work"] in works


# Shows F46.
def test_a_periodic_task_whose_table_is_damaged_does_not_stop_other_work(
    installation: Installation, receiver: EventReceiver
) -> None:
    damage(installation, "refused_cards")
    # What deletes old records reads the table too, and may be first.
    works = ("find_card_testing", "forget_old_records")
    with working_after_a_failure_of(installation, receiver, *works):
        wait_until(lambda: has_heartbeat(installation))


# Shows F46.
def test_a_damaged_queue_table_stops_the_heartbeat_but_no_other_work(
    installation: Installation, receiver: EventReceiver
) -> None:
    damage(installation, "discards")
    with working_after_a_failure_of(installation, receiver, "discards", "forget_old_records"):
        assert not has_heartbeat(installation)
