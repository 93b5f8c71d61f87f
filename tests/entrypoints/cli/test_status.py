from __future__ import annotations

import json
import re
import socket
from datetime import UTC, datetime, timedelta
from typing import Final

import pytest

from adapters.psp.findings import ok, unknown
from adapters.psp_suite.samples import OTHER_GUEST_ID
from domain.cards.account import READINGS_PER_MINUTE
from domain.events.event import EventType
from domain.personal_data.erasure import Erasure
from domain.worker.heartbeat import WorkerState
from tests.builders import (
    a_configuration,
    a_session,
    a_worker,
    an_access_token,
    an_account,
    an_event_delivery,
    an_event_endpoint,
)
from tests.databases import committed, make_database_of_0_1_0, workers_age
from tests.entrypoints.conftest import CommandLine

MINUTE: Final = timedelta(minutes=1)


def is_seen(
    cardonfile: CommandLine, *workers: int, state: WorkerState = WorkerState.RUNNING
) -> None:
    with committed(cardonfile.storage) as unit:
        for number in workers:
            unit.workers.leave_heartbeat(a_worker(number), datetime.now(UTC), state)


def does_not_work(cardonfile: CommandLine, **environment: str) -> str:
    """Return the sentence in which `status` says that the service cannot work."""
    result = cardonfile.run("status", **environment)
    assert result.exit_code == 3
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_status_shows_all_waiting_work(cardonfile: CommandLine) -> None:
    now = datetime.now(UTC)
    since = (now - MINUTE / 2).replace(microsecond=0)
    with committed(cardonfile.storage) as unit:
        unit.sessions.add(a_session(due_at=since, unanswered_since=since))
        unit.accounts.add(an_account(due_at=now + MINUTE, asked_at=since))
        erasure = Erasure(guest_id=OTHER_GUEST_ID, erased_at=since, due_at=now)
        unit.erasures.add(erasure.waiting_for([an_account().psp_account]))
        unit.event_endpoints.add(an_event_endpoint(types=(EventType.ACCOUNT_STORED,)))
        unit.event_deliveries.add(an_event_delivery(due_at=now + MINUTE))
        unit.access_tokens.add(an_access_token(issued_at=now, expires_at=now + MINUTE))
    is_seen(cardonfile, 1)
    is_seen(cardonfile, 3, state=WorkerState.STOPPED)
    workers_age(cardonfile.storage, 2 * MINUTE)
    is_seen(cardonfile, 2)

    shown = json.loads(cardonfile.succeeds("status", "--json"))
    states = [(each["pid"], each["state"], each["missing"]) for each in shown.pop("workers")]
    assert sorted(states) == [(1, "running", True), (2, "running", False), (3, "stopped", False)]
    assert shown.pop("due")[0] == {"due": "sessions", "items": 1, "since": f"{since:%FT%TZ}"}
    account = "/".join(a_configuration().psp_account)
    unanswered = {"unanswered": account, "items": 1, "since": f"{since:%FT%TZ}"}
    assert shown.pop("unanswered") == [unanswered]
    (erasure,) = shown.pop("erasures")
    assert erasure == {"erasures": account, "items": 1, "since": f"{since:%FT%TZ}"}
    (endpoint,) = shown.pop("endpoints")
    assert endpoint["endpoint"] == an_event_endpoint().endpoint_id
    assert (endpoint["active"], endpoint["pending"], endpoint["failed"]) == (True, 1, 0)
    (token,) = shown.pop("expiring")
    assert (token["token"], token["caller"]) == ("5e88", "web-store")
    budget = {"readings": account, "items": 1, "of": READINGS_PER_MINUTE}
    assert shown.pop("readings") == [budget]
    assert shown == {"release": shown["release"], "migration": "m007_release_0_3"}


def test_status_fails_if_no_worker_has_run_for_a_minute(cardonfile: CommandLine) -> None:
    assert "`cardonfile work`" in does_not_work(cardonfile)

    is_seen(cardonfile, 1)
    workers_age(cardonfile.storage, 2 * MINUTE)
    assert "no worker" in does_not_work(cardonfile)
    shown = cardonfile.run("status").stdout.splitlines()
    assert shown[1] == "migration  m007_release_0_3"
    assert shown[3].split()[:4] == ["HOST", "PID", "RELEASE", "STATE"]
    assert re.search(r" \d{3} s$", shown[4])
    assert [line.split()[0] for line in shown[7:12]] == [
        *("sessions", "discards", "cards", "events", "erasures")
    ]


def test_status_fails_if_the_database_cannot_be_used(unmigrated: CommandLine) -> None:
    assert "`cardonfile migrate`" in does_not_work(unmigrated)
    make_database_of_0_1_0(unmigrated.database)
    assert "`cardonfile migrate`" in does_not_work(unmigrated)
    unmigrated.database.write_text("This is no database, but a text of some length." * 9)
    assert "cannot be used" in does_not_work(unmigrated)
    server = "postgresql://judy:s3cret@127.0.0.1:1/cards"
    said = does_not_work(unmigrated, CARDONFILE_DATABASE_URL=server)
    assert "Connection refused" in said
    assert "s3cret" not in said


def test_status_does_not_wait_for_a_database_server_that_hangs(
    cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("entrypoints.cli.status.WITHIN_SECONDS", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"postgresql://cardonfile:s3cret@127.0.0.1:{silent.getsockname()[1]}/cards"

        said = does_not_work(cardonfile, CARDONFILE_DATABASE_URL=url)
    assert "did not respond" in said
    assert "s3cret" not in said


def test_status_names_an_invalid_setting(cardonfile: CommandLine) -> None:
    assert "CARDONFILE_LOG_FORMAT" in cardonfile.refuses("status", CARDONFILE_LOG_FORMAT="xml")


class TestDoctor:
    """tests/entrypoints/test_doctor.py tests the findings."""

    def test_the_exit_status_of_doctor_is_nonzero_if_doctor_found_a_problem(
        self, cardonfile: CommandLine
    ) -> None:
        away = {
            "CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:1",
            "CARDONFILE_RATE_LIMIT_STORAGE": "redis://127.0.0.1:1",
        }
        result = cardonfile.run("doctor", **away)

        assert result.exit_code == 1
        # Log lines are not mixed with the findings.
        assert "rate_limit_storage_away" in result.stderr
        assert "rate_limit_storage_away" not in result.stdout
        header, *lines = (line.split() for line in result.stdout.splitlines())
        assert header == ["RESULT", "ABOUT", "FINDING"]
        assert ["problem", "public", "address"] in [line[:3] for line in lines]

    def test_doctor_reports_a_check_that_it_cannot_perform_as_unknown(
        self, cardonfile: CommandLine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        found = [ok("disk", "there is room"), unknown("clock", "nobody tells the time")]
        monkeypatch.setattr("entrypoints.doctor.examine", lambda _: found)

        assert json.loads(cardonfile.succeeds("doctor", "--json")) == [
            {"result": "ok", "about": "disk", "finding": "there is room"},
            {"result": "unknown", "about": "clock", "finding": "nobody tells the time"},
        ]
