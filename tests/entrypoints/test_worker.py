"""The heartbeat of the worker, and who notices that it is missing."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from adapters.http.health import WorkerWatch
from domain.errors import ServiceUnavailable
from domain.reconcile import Round
from entrypoints.worker import BeatingReconciler
from tests.adapters.http.api import Api
from tests.installation import Installation

MISSING = {"status": "ready, but no worker has run for a minute"}
ALMOST_A_MINUTE = timedelta(seconds=59)


def test_readiness_and_the_log_say_when_no_worker_has_run_for_a_minute(
    installation: Installation,
) -> None:
    api = Api(installation)
    with capture_logs() as logs:
        # A worker that is started with the service has a minute.
        installation.clock.advance(ALMOST_A_MINUTE)
        assert api.get("/readyz").json == {"status": "ready"}
        installation.container.leave_heartbeat()()
        installation.clock.advance(ALMOST_A_MINUTE)
        assert api.get("/readyz").json == {"status": "ready"}
        installation.clock.advance(timedelta(seconds=2))
        for _ in range(2):
            answer = api.get("/readyz")
            assert (answer.status_code, answer.json) == (200, MISSING)
        installation.container.leave_heartbeat()()
        assert api.get("/readyz").json == {"status": "ready"}

    told = [(line["event"], line["log_level"]) for line in logs if line["event"] != "request"]
    assert told == [("worker_missing", "error"), ("worker_back", "warning")]


def test_it_is_noticed_by_whoever_has_work_for_it_once_a_minute() -> None:
    seconds, looks = [0.0], []

    def is_missing() -> bool:
        looks.append(seconds[0])
        if len(looks) == 2:
            raise ServiceUnavailable
        return True

    watch = WorkerWatch(is_missing, lambda: seconds[0])
    with capture_logs() as logs:
        for seconds[0] in (0.0, 59.0, 60.0, 61.0, 119.0, 120.0, 500.0):
            watch.look_now_and_then()

    assert looks == [60.0, 120.0, 500.0]
    assert [line["event"] for line in logs] == ["worker_missing"]


def test_a_webhook_that_finds_no_worker_has_it_in_the_log(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("adapters.http.health.LOOK_EVERY_SECONDS", 0)
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


def test_a_worker_leaves_a_heartbeat_every_20_seconds_also_within_a_long_round() -> None:
    seconds, beats = [0.0], []

    def reconcile(*, is_stopping: Callable[[], bool]) -> Round:
        for _ in range(4):
            assert not is_stopping()
            seconds[0] += 15
        return Round()

    worker = BeatingReconciler(reconcile, lambda: beats.append(seconds[0]), lambda: seconds[0])
    worker(is_stopping=lambda: False)
    worker(is_stopping=lambda: False)

    assert beats == [0, 30, 60, 90]
