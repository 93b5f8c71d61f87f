from __future__ import annotations

from datetime import UTC, datetime

import pytest
from structlog.testing import capture_logs

from adapters.sql.repositories.worker import _HEARTBEATS
from domain.storage import Storage
from domain.worker.heartbeat import WorkerProcess, WorkerState
from tests.builders import a_worker
from tests.contracts.storage.records import MINUTE
from tests.databases import change_by_hand, committed, workers_age


def now() -> datetime:
    """Return the real time, because PostgreSQL uses its own clock."""
    return datetime.now(UTC)


def leave_heartbeats(storage: Storage, *workers: WorkerProcess) -> None:
    for worker in workers:
        with committed(storage) as unit:
            unit.workers.leave_heartbeat(worker, now())


def test_workers_are_listed_in_order_of_their_first_heartbeats(storage: Storage) -> None:
    leave_heartbeats(storage, a_worker(2), a_worker(1), a_worker(2))

    with storage.read() as unit:
        seen = unit.workers.seen(now())
    assert [each.worker for each in seen] == [a_worker(2), a_worker(1)]
    for each in seen:
        assert each.state is WorkerState.RUNNING
        assert abs(each.age) < MINUTE
        assert abs(now() - each.since) < MINUTE


def test_the_reported_age_of_a_worker_is_the_time_since_its_last_heartbeat(
    storage: Storage,
) -> None:
    leave_heartbeats(storage, a_worker(1), a_worker(2))
    workers_age(storage, 5 * MINUTE)
    leave_heartbeats(storage, a_worker(1))

    with storage.read() as unit:
        first, second = unit.workers.seen(now())
    assert abs(first.age) < MINUTE
    assert abs(second.age - 5 * MINUTE) < MINUTE
    for each in (first, second):
        assert abs(now() - each.since - 5 * MINUTE) < MINUTE


def test_only_a_running_worker_can_be_marked_as_lost(storage: Storage) -> None:
    running, stopped = a_worker(1), a_worker(2)
    with committed(storage) as unit:
        assert not unit.workers.lose(running.worker_id)
        unit.workers.leave_heartbeat(running, now())
        unit.workers.leave_heartbeat(stopped, now(), WorkerState.STOPPED)
        assert unit.workers.lose(running.worker_id)
        assert not unit.workers.lose(running.worker_id)
        assert not unit.workers.lose(stopped.worker_id)
    with storage.read() as unit:
        states = {each.worker: each.state for each in unit.workers.seen(now())}
    assert states == {running: WorkerState.LOST, stopped: WorkerState.STOPPED}


def test_a_worker_that_was_marked_as_lost_counts_as_running_after_a_heartbeat(
    storage: Storage,
) -> None:
    leave_heartbeats(storage, a_worker())
    for _ in range(2):
        with committed(storage) as unit:
            assert unit.workers.lose(a_worker().worker_id)
        leave_heartbeats(storage, a_worker())


# Shows F46.
def test_an_unknown_worker_state_does_not_hide_other_workers(
    storage: Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A process logs each row only once, and this test runs on each storage.
    monkeypatch.setattr(_HEARTBEATS, "_logged", set())
    leave_heartbeats(storage, a_worker(1), a_worker(2))
    unknown = a_worker(1).worker_id
    change_by_hand(storage, f"UPDATE workers SET state = 'odd' WHERE worker_id = '{unknown}'")

    with capture_logs() as lines, storage.read() as unit:
        for _ in range(2):
            assert [each.worker for each in unit.workers.seen(now())] == [a_worker(2)]
    assert [line["event"] for line in lines] == ["record_unreadable"]


def test_deleting_a_worker_keeps_other_workers(storage: Storage) -> None:
    leave_heartbeats(storage, a_worker(1), a_worker(2))
    for _ in range(2):
        with committed(storage) as unit:
            unit.workers.forget(a_worker(1).worker_id)

    with storage.read() as unit:
        assert [each.worker for each in unit.workers.seen(now())] == [a_worker(2)]
