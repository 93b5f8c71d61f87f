"""The worker's heartbeat and periodic tasks, and how a missing worker is noticed."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Network
from pathlib import Path
from types import SimpleNamespace
from typing import Final

import pytest
from structlog.testing import capture_logs

from adapters.events.sender import HttpEventSender
from adapters.fake_psp.plugin import NAME as FAKE
from adapters.http.health import WorkerWatch
from adapters.sqlite.connection import connect
from domain.errors import ServiceUnavailable
from domain.events.deliver_event import DeliverEvent
from domain.events.event import ENDPOINT_TYPES
from domain.worker.heartbeat import WorkerProcess, WorkerState
from entrypoints.worker.reports import WorkLog
from entrypoints.worker.worker import Worker
from tests.adapters.http.api import Api
from tests.builders import a_worker
from tests.databases import committed, workers_age
from tests.event_receiver import EventReceiver
from tests.installation import Installation
from tests.postgresql import empty_database
from tests.waiting import LIMIT_SECONDS, wait_until

MISSING = {"status": "ready, but no worker has run for a minute"}
LOOPBACK: Final = IPv4Network("127.0.0.0/8")
ALMOST_A_MINUTE = timedelta(seconds=59)
NOBODY: Final = "http://127.0.0.1:1"


def test_the_readiness_check_reports_that_no_worker_has_run_for_a_minute(
    installation: Installation,
) -> None:
    api = Api(installation)
    with capture_logs() as logs:
        # A worker that starts with the service has a minute for its first heartbeat.
        installation.clock.advance(ALMOST_A_MINUTE)
        assert api.get("/readyz").json == {"status": "ready"}
        installation.container.leave_heartbeat()(a_worker())
        installation.clock.advance(ALMOST_A_MINUTE)
        assert api.get("/readyz").json == {"status": "ready"}
        installation.clock.advance(timedelta(seconds=2))
        for _ in range(2):
            answer = api.get("/readyz")
            assert (answer.status_code, answer.json) == (200, MISSING)
        installation.container.leave_heartbeat()(a_worker())
        assert api.get("/readyz").json == {"status": "ready"}

    told = [(line["event"], line["log_level"]) for line in logs if line["event"] != "request"]
    assert told == [("worker_missing", "error"), ("worker_back", "warning")]


def test_web_processes_check_for_a_missing_worker_at_most_once_a_minute() -> None:
    seconds, looks = [0.0], []

    def is_missing() -> bool:
        looks.append(seconds[0])
        if len(looks) == 2:
            raise ServiceUnavailable
        return True

    watch = WorkerWatch(is_missing, lambda: seconds[0])
    with capture_logs() as logs:
        for seconds[0] in (0.0, 59.0, 60.0, 61.0, 119.0, 120.0, 500.0):
            watch.check_if_due()

    assert looks == [60.0, 120.0, 500.0]
    assert [line["event"] for line in logs] == ["worker_missing"]


def test_a_missing_worker_is_logged_when_a_browser_returns_to_the_shop(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.http.health.CHECK_EVERY_SECONDS", 0)
    session = installation.opened_session()
    api = Api(installation)
    installation.clock.advance(timedelta(minutes=2))
    with capture_logs() as logs:
        api.send(
            "GET",
            "/hosted-payments/return",
            query=f"token_id={session.token_id}",
            authenticated=False,
        )

    assert "worker_missing" in [line["event"] for line in logs]


def installed(folder: Path, url: str) -> Installation:
    fake_psp = str(folder / "fake-psp.db")
    return Installation(folder, CARDONFILE_DATABASE_URL=url, CARDONFILE_FAKE_PSP_DATABASE=fake_psp)


class TestTwoWorkers:
    def test_a_running_worker_reports_the_loss_of_another_worker_once(
        self, installation: Installation
    ) -> None:
        leave_heartbeat = installation.container.leave_heartbeat()
        dead, stopped = a_worker(host="web-2", pid=4711, release="0.2.0"), a_worker(2)
        worker = Worker(installation.container, base_url=NOBODY)
        for each in (dead, stopped):
            assert leave_heartbeat(each) == []
        leave_heartbeat(stopped, WorkerState.STOPPED)
        worker._beat()
        with capture_logs() as lines:
            for _ in range(4):
                installation.clock.advance(timedelta(seconds=35))
                worker._beat()

        lost = {"host": "web-2", "pid": 4711, "release": "0.2.0"}
        assert lines == [{"event": "worker_lost", "log_level": "error", **lost}]

    def test_a_worker_does_not_report_another_worker_as_lost_after_a_database_outage(
        self, installation: Installation
    ) -> None:
        leave_heartbeat = installation.container.leave_heartbeat()
        for _ in range(2):
            assert [leave_heartbeat(a_worker(number)) for number in (1, 2)] == [[], []]
            installation.clock.advance(timedelta(minutes=2))

    def test_a_worker_that_just_started_does_not_report_another_worker_as_lost(
        self, installation: Installation
    ) -> None:
        leave_heartbeat = installation.container.leave_heartbeat()
        leave_heartbeat(a_worker(1))
        installation.clock.advance(timedelta(minutes=2))

        assert [leave_heartbeat(a_worker(2)) for _ in range(2)] == [[], [a_worker(1)]]

    def test_a_worker_without_a_heartbeat_for_a_day_is_deleted(
        self, installation: Installation
    ) -> None:
        leave_heartbeat = installation.container.leave_heartbeat()
        for number, hours in ((1, 2), (2, 23), (3, 0)):
            leave_heartbeat(a_worker(number))
            installation.clock.advance(timedelta(hours=hours))

        with installation.storage.read() as unit:
            seen = unit.workers.seen(installation.clock.now())
        assert [each.worker for each in seen] == [a_worker(2), a_worker(3)]


@pytest.mark.parametrize("wrong_by", [timedelta(minutes=3), -timedelta(minutes=3)])
def test_a_wrong_clock_does_not_make_a_worker_count_as_missing_on_postgresql(
    tmp_path: Path, postgresql_server: str, wrong_by: timedelta
) -> None:
    with (
        empty_database(postgresql_server) as url,
        closing(installed(tmp_path, url)) as right,
        closing(installed(tmp_path, url)) as wrong,
    ):
        wrong.clock.advance(wrong_by)
        machines = ((right, a_worker(1)), (wrong, a_worker(2)))
        for _ in range(2):
            for machine, worker in machines:
                assert machine.container.leave_heartbeat()(worker) == []
        for machine, _ in machines:
            assert not machine.container.workers().is_missing()
            # The machines have waited long enough for a first heartbeat.
            machine.clock.advance(timedelta(minutes=2))
        workers_age(right.storage, timedelta(seconds=50))
        for machine, _ in machines:
            assert not machine.container.workers().is_missing()
        workers_age(right.storage, timedelta(seconds=20))
        for machine, _ in machines:
            assert machine.container.workers().is_missing()


def test_a_stopped_worker_counts_as_missing_after_a_minute(installation: Installation) -> None:
    is_missing = installation.container.workers().is_missing
    installation.clock.advance(timedelta(minutes=2))
    installation.container.leave_heartbeat()(a_worker(), WorkerState.STOPPED)
    installation.clock.advance(ALMOST_A_MINUTE)
    assert not is_missing()
    installation.clock.advance(timedelta(seconds=2))
    assert is_missing()


def test_a_worker_that_cannot_read_due_deliveries_writes_no_heartbeat(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ServiceUnavailable

    def leave(_: WorkerProcess, state: WorkerState) -> Sequence[WorkerProcess]:
        left.append(state)
        return ()

    left: list[WorkerState] = []
    monkeypatch.setattr(DeliverEvent, "take", fail)
    installation.container.leave_heartbeat.override(leave)
    worker = Worker(installation.container, base_url=NOBODY)
    with capture_logs() as lines:
        worker.start()
        wait_until(lambda: "events" in [line.get("work") for line in lines])
        wait_until(lambda: worker._at_psps.finds_work)
        worker.stop()

    assert left == [WorkerState.STOPPED]


def test_a_worker_that_can_write_a_heartbeat_again_logs_that_work_has_recovered(
    installation: Installation,
) -> None:
    seconds = [0.0]
    worker = Worker(installation.container, base_url=NOBODY)
    worker._work_log = WorkLog(lambda: seconds[0])
    with capture_logs() as lines:
        worker._work_log.failed("events", ServiceUnavailable())
        seconds[0] = 1_000.0
        worker._beat()

    assert [line["event"] for line in lines] == [
        "reconciler_without_storage",
        "reconciler_storage_back",
    ]
    assert lines[1]["work"] == ["events"]


def test_a_failure_of_background_work_for_a_psp_does_not_stop_the_worker(
    installation: Installation,
) -> None:
    def fail() -> None:
        raise ValueError("a secret")

    settings, broken = installation.settings, SimpleNamespace(start=fail, stop=fail)
    plugin = replace(settings.psps[FAKE].plugin, background=lambda _, __: broken)
    psps = {FAKE: replace(settings.psps[FAKE], plugin=plugin)}
    installation.container.settings.override(replace(settings, psps=psps))
    worker = Worker(installation.container, base_url=NOBODY)

    with capture_logs() as lines:
        worker.start()
        worker.stop()

    events = [line["event"] for line in lines if line["log_level"] == "error"]
    assert events == ["psp_background_fault", "psp_background_fault"]
    assert not worker._at_psps._thread.is_alive()


# Shows I10, F43.
def test_an_endpoint_that_hangs_does_not_delay_deliveries_to_other_endpoints(
    tmp_path: Path,
) -> None:
    is_over = threading.Event()
    with (
        closing(Installation(tmp_path)) as installation,
        EventReceiver() as hanging,
        EventReceiver() as good,
    ):
        container = installation.container
        # Without its limit, so that only the good endpoint can be why events are delivered.
        sender = HttpEventSender(
            may_be_http=True, allowed_networks=[LOOPBACK], total_seconds=10 * LIMIT_SECONDS
        )
        container.deliver_event.override(replace(container.deliver_event(), sender=sender))
        for endpoint in (hanging, good):
            container.add_event_endpoint()(url=endpoint.url, types=ENDPOINT_TYPES)
        hanging.before = lambda _: is_over.wait(10 * LIMIT_SECONDS)
        worker = Worker(container, base_url=NOBODY)
        worker.start()
        installation.removed_card()
        wait_until(lambda: hanging.received)
        for _ in range(3):
            installation.removed_card()

        wait_until(lambda: len(good.received) == 8)
        assert len(hanging.received) == 1
        is_over.set()
        wait_until(lambda: hanging.times == good.times)
        worker.stop()


def test_a_worker_performs_its_periodic_tasks_when_it_starts(installation: Installation) -> None:
    container, caller = installation.container, installation.caller.name
    # Nothing is sent there, because it is not public.
    installation.has_endpoint("https://127.0.0.1")
    installation.stored_card(idempotency_key="key")
    installation.clock.advance(datetime(2031, 9, 23, tzinfo=UTC) - installation.clock.now())
    installation.read_cards()
    # Given up, so that it is old and no longer due.
    with committed(installation.storage) as unit:
        (stored,) = unit.event_deliveries.latest(limit=9, only_failed=False)
        unit.event_deliveries.update(stored.failed_for_good("500", installation.clock.now()))
    worker = Worker(container, base_url=NOBODY)

    def is_done() -> bool:
        with installation.storage.read() as unit:
            deliveries = unit.event_deliveries.latest(limit=9, only_failed=False)
            return (
                len(unit.workers.seen(installation.clock.now())) == 1
                and unit.idempotency_keys.get(caller, "key", since=stored.event.occurred_at) is None
                and [each.event.type for each in deliveries] == ["account.expiring"]
            )

    with capture_logs() as lines:
        worker.start()
        try:
            wait_until(is_done)
            wait_until(lambda: "event_endpoint_away" in [line["event"] for line in lines])
        finally:
            worker.stop()


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
def working_with_damaged(installation: Installation, table: str, *works: str) -> Iterator[None]:
    """Check that a worker continues after one of these works has failed, and logs that once."""
    worker = Worker(installation.container, base_url=NOBODY)
    with EventReceiver() as receiver, capture_logs() as lines:
        installation.has_endpoint(receiver.url)
        damage(installation, table)
        worker.start()
        try:
            wait_until(lambda: "reconciler_without_storage" in [line["event"] for line in lines])
            token_id = installation.add_card().token_id
            installation.clock.advance(timedelta(minutes=30))
            wait_until(
                lambda: token_id in [each.content["data"]["token_id"] for each in receiver.received]
            )
            yield
        finally:
            worker.stop()
    (line,) = (line for line in lines if line["log_level"] == "error")
    assert line["work"] in works


# Shows F46.
@pytest.mark.installed(CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")
def test_a_periodic_task_whose_table_is_damaged_does_not_stop_other_work(
    installation: Installation,
) -> None:
    # What deletes old records reads the table too, and may be first.
    works = ("find_card_testing", "forget_old_records")
    with working_with_damaged(installation, "refused_cards", *works):
        wait_until(lambda: has_heartbeat(installation))


# Shows F46.
@pytest.mark.installed(CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")
def test_a_damaged_queue_table_stops_the_heartbeat_but_no_other_work(
    installation: Installation,
) -> None:
    with working_with_damaged(installation, "discards", "discards", "forget_old_records"):
        assert not has_heartbeat(installation)
