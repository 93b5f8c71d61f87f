from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from adapters.psp.contract.samples import NOW
from domain.errors import ServiceUnavailable
from domain.events.deliver_event import Attempt, EndpointState
from domain.events.event import EventType
from domain.identifiers import CenterId, MerchantAccount
from domain.sessions.session import CardSession, SessionStatus
from domain.storage import Storage
from domain.worker.reconcile import MAX_PER_ROUND
from entrypoints.worker import job_runner, reports
from entrypoints.worker.job_runner import Reconciler, run_until_idle, sessions_and_discards
from entrypoints.worker.reports import EndpointLog, WorkLog
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, an_event_delivery
from tests.event_receiver import EventReceiver
from tests.installation import GOOD_CARD, MERCHANT, OTHER_GOOD_CARD, Installation, Trouble
from tests.simulation.ports import Moment, WatchedStorage
from tests.waiting import wait_until


@contextmanager
def running(
    installation: Installation, storage: Storage | None = None
) -> Iterator[threading.Event]:
    """Run a reconciler with four threads for a block, and lend the event that wakes it."""
    container, work = installation.container, threading.Event()
    reconciler = Reconciler(
        take=sessions_and_discards(
            replace(container.settle_in_worker(), storage=storage or installation.storage),
            replace(container.discard_token(), storage=storage or installation.storage),
        ),
        clock=installation.clock,
        work=work,
        threads=4,
        threads_per_target=3,
        capacities=container.breakers().capacities,
    )
    reconciler.start()
    try:
        yield work
    finally:
        reconciler.stop()


def sessions_with_a_card(
    installation: Installation, number: int, center_id: CenterId = CENTER_ID
) -> list[CardSession]:
    """Return due sessions, each with a typed card."""
    sessions = [installation.opened_session(center_id=center_id) for _ in range(number)]
    for session in sessions:
        installation.type_card(session)
    installation.clock.advance(timedelta(seconds=30))
    return sessions


def settled(installation: Installation, sessions: Iterable[CardSession]) -> list[bool]:
    return [installation.session(each.token_id).is_settled for each in sessions]


def test_what_is_due_is_settled_and_what_is_not_kept_is_discarded(
    installation: Installation,
) -> None:
    sessions = sessions_with_a_card(installation, 10)
    with running(installation):
        # It is one card: one session stores it, the tokens of the others are discarded.
        wait_until(
            lambda: all(settled(installation, sessions)) and len(installation.tokens_at_psp()) == 1
        )

    (account,) = installation.accounts()
    assert installation.tokens_at_psp() == {account.token}


# Shows F22.
def test_a_merchant_account_that_hangs_delays_no_other(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID, merchant_account=MerchantAccount("harbor"))
    stuck = sessions_with_a_card(installation, 20)
    others = sessions_with_a_card(installation, 5, OTHER_CENTER_ID)
    goes_on = threading.Event()
    installation.provider.before = lambda _, account: account != MERCHANT or goes_on.wait(60)

    with running(installation):
        try:
            wait_until(lambda: all(settled(installation, others)))
            assert not any(settled(installation, stuck))
        finally:
            goes_on.set()
        wait_until(lambda: all(settled(installation, stuck)))


def test_no_more_is_taken_than_there_are_threads(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID, merchant_account=MerchantAccount("harbor"))
    sessions = [
        *sessions_with_a_card(installation, 4),
        *sessions_with_a_card(installation, 4, OTHER_CENTER_ID),
    ]
    under_way, goes_on = threading.Semaphore(0), threading.Event()

    def hang(_: str, __: MerchantAccount) -> None:
        under_way.release()
        goes_on.wait(60)

    installation.provider.before = hang
    with running(installation) as work:
        try:
            for _ in range(4):
                assert under_way.acquire(timeout=60)
            # The worker looks again each time.
            for _ in range(5):
                work.set()
                wait_until(lambda: not work.is_set())
            due = [installation.session(each.token_id).due_at for each in sessions]
            assert sum(at is not None and at > installation.clock.now() for at in due) == 4
        finally:
            goes_on.set()


def test_without_work_nothing_is_written(installation: Installation) -> None:
    installation.opened_session()
    installation.removed_card()
    installation.reconcile_until_idle()
    calls: list[str] = []

    def note(call: str, moment: Moment, arguments: object = ()) -> None:
        calls.append(call)

    def has_looked_often() -> bool:
        work.set()
        return calls.count("storage.read") > 20

    with running(installation, WatchedStorage(installation.storage, note)) as work:
        wait_until(has_looked_often)

    assert "storage.write" not in calls


def test_one_that_stumbles_stops_no_other_and_nor_does_a_log_that_cannot_be_written(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    calls: list[str] = []

    def stumble_at_first(call: str, _: MerchantAccount) -> None:
        calls.append(call)
        if len(calls) == 1:
            broken()

    sessions = sessions_with_a_card(installation, 5)
    installation.provider.before = stumble_at_first
    for log in (job_runner.log, reports.log):
        for level in ("info", "warning", "error"):
            monkeypatch.setattr(log, level, broken, raising=False)

    with running(installation):
        wait_until(lambda: settled(installation, sessions).count(True) == 4)


def test_work_that_fails_is_in_the_log_once_and_so_is_its_return_a_line_a_minute_at_most() -> None:
    seconds = [0.0]
    work_log = WorkLog(lambda: seconds[0])
    told: list[tuple[float, str, object]] = []
    unavailable = ServiceUnavailable()
    unavailable.__cause__ = OSError("/srv/cards.db: disk I/O error")
    with capture_logs() as lines:
        # For 200 seconds one reconciler fails each second, beside one that has nothing to write.
        for seconds[0] in map(float, range(600)):
            if seconds[0] < 200:
                work_log.failed("sessions", unavailable)
            if seconds[0] >= 310:
                work_log.failed("events", ZeroDivisionError())
            if seconds[0] % 20 == 0:
                work_log.succeeded("sessions", "events", "discards")
            new = lines[len(told) :]
            told += [(seconds[0], line["event"], line["work"]) for line in new]

    assert told == [
        (0, "reconciler_without_storage", "sessions"),
        (300, "reconciler_storage_back", ["sessions"]),
        (360, "reconciler_fault", "events"),
    ]
    assert lines[0]["cause"] == "/srv/cards.db: disk I/O error"


def test_the_command_works_until_nothing_is_due(installation: Installation) -> None:
    sessions = [installation.add_card() for _ in range(MAX_PER_ROUND + 1)]
    installation.clock.advance(timedelta(minutes=30))

    rounds = run_until_idle(installation.reconcile)

    assert [each.sessions for each in rounds] == [MAX_PER_ROUND, 1, 0]
    assert installation.session(sessions[-1].token_id).status is SessionStatus.EXPIRED


def test_the_command_tries_an_endpoint_that_takes_no_event_once_and_logs_it(tmp_path: Path) -> None:
    installation = Installation(tmp_path, CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")
    with EventReceiver() as away, EventReceiver() as taking:
        away.status = 503
        for each in (away, taking):
            installation.container.add_event_endpoint()(
                url=each.url, types=[EventType.ACCOUNT_STORED]
            )
        for number in (GOOD_CARD, OTHER_GOOD_CARD):
            installation.stored_card(number)

        with capture_logs() as logs:
            run_until_idle(installation.reconcile)

        assert (len(away.received), len(taking.received)) == (1, 2)
        lines = [line["event"] for line in logs]
        assert lines.count("event_endpoint_away") == 1

        installation.clock.advance(timedelta(minutes=1))
        run_until_idle(installation.reconcile)
        assert len(away.received) == 2
    installation.close()


def test_an_endpoint_that_goes_away_is_in_the_log_once_and_so_is_its_return() -> None:
    away = Attempt(an_event_delivery().refused("500", NOW), EndpointState.AWAY)
    back = Attempt(an_event_delivery().delivered("200", NOW), EndpointState.TAKES_EVENTS)
    note_result = EndpointLog()
    with capture_logs() as lines:
        for each in (back, away, away, back, back, away):
            note_result(each)
    assert [line["event"] for line in lines] == [
        "event_endpoint_away",
        "event_endpoint_back",
        "event_endpoint_away",
    ]


def test_a_psp_that_is_silent_for_a_day_is_in_the_log(installation: Installation) -> None:
    installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.clock.advance(timedelta(minutes=1))
    run_until_idle(installation.reconcile)
    installation.clock.advance(timedelta(hours=24))

    with capture_logs() as logs:
        run_until_idle(installation.reconcile)

    (line,) = (line for line in logs if line["event"] == "psp_silent_for_24_hours")
    assert (line["log_level"], line["silent"]) == ("error", 1)


def test_a_psp_that_is_silent_for_a_day_is_in_the_log_of_the_worker_and_asked_again(
    installation: Installation,
) -> None:
    sessions = sessions_with_a_card(installation, 5)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    with capture_logs() as logs, running(installation) as work:
        for hours in (0, 24):
            installation.clock.advance(timedelta(hours=hours))
            work.set()
            wait_until(lambda: all(waiting(installation, sessions)))
        wait_until(lambda: silent(logs) == 5)

        installation.provider.recover()
        installation.clock.advance(timedelta(hours=1))
        work.set()
        wait_until(lambda: all(settled(installation, sessions)))


def waiting(installation: Installation, sessions: Iterable[CardSession]) -> list[bool]:
    """Return of each session whether its PSP was asked in vain, and is asked again later."""
    now, seen = installation.clock.now(), [installation.session(s.token_id) for s in sessions]
    return [s.unanswered_since is not None and (s.due_at or now) > now for s in seen]


def silent(logs: Iterable[MutableMapping[str, Any]]) -> int:
    """Return of how many jobs the log says that their PSP is silent."""
    return sum(line["silent"] for line in logs if line["event"] == "psp_silent_for_24_hours")
