from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest
from structlog.testing import capture_logs

from domain.errors import ServiceUnavailable
from domain.identifiers import CenterId, MerchantAccount, ProviderName, PspAccount
from domain.sessions.session import CardSession
from domain.storage import RecordUnreadable, Storage
from domain.worker.jobs import Job, Result, jobs_at_psps
from entrypoints.worker import job_runner, reports
from entrypoints.worker.job_runner import Chore, JobRunner
from entrypoints.worker.reports import WorkLog
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.installation import MERCHANT, Installation, Trouble
from tests.simulation.ports import Moment, WatchedStorage
from tests.waiting import wait_until

AT_PSP: Final = PspAccount(ProviderName("fake"), MERCHANT)


@contextmanager
def running(
    installation: Installation, storage: Storage | None = None
) -> Iterator[threading.Event]:
    """Run a runner with four threads for a block, and lend the event that wakes it."""
    container, work = installation.container, threading.Event()
    runner = JobRunner(
        take=jobs_at_psps(
            replace(container.settle_in_worker(), storage=storage or installation.storage),
            replace(container.discard_token(), storage=storage or installation.storage),
            replace(container.refresh_account(), storage=storage or installation.storage),
            installation.clock,
        ),
        work=work,
        threads=4,
        threads_per_target=3,
        capacities=container.breakers().capacities,
    )
    runner.start()
    try:
        yield work
    finally:
        runner.stop()


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
    return [installation.session(session.token_id).is_settled for session in sessions]


def test_one_token_is_left_of_a_card_that_was_typed_ten_times(
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
            due = [installation.session(session.token_id).due_at for session in sessions]
            assert sum(at is not None and at > installation.clock.now() for at in due) == 4
        finally:
            goes_on.set()


def test_nothing_is_written_without_work(installation: Installation) -> None:
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


def test_one_that_stumbles_stops_no_other_even_without_a_log(
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


def test_a_psp_that_is_silent_for_a_day_is_asked_again(
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


def test_a_chore_is_done_again_when_its_time_has_come(installation: Installation) -> None:
    work, done = threading.Event(), []
    runner: JobRunner[PspAccount] = JobRunner(
        take={},
        work=work,
        threads=1,
        threads_per_target=1,
        chores=[
            Chore("a", timedelta(0), lambda: done.append("often")),
            Chore("b", timedelta(hours=1), lambda: done.append("seldom")),
        ],
    )
    runner.start()

    def is_done_often() -> bool:
        work.set()
        return done.count("often") > 3

    wait_until(is_done_often)
    runner.stop()
    assert done.count("seldom") == 1


def test_a_chore_of_which_there_is_more_lets_jobs_come_in_between(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(job_runner, "LOOK_EVERY_SECONDS", 0.001)
    container, seen = installation.container, []
    session = installation.session_with_card()
    installation.clock.advance(timedelta(seconds=30))

    def have_more() -> bool:
        seen.append(installation.session(session.token_id).is_settled)
        return not seen[-1]

    runner = JobRunner(
        take=jobs_at_psps(
            container.settle_in_worker(),
            container.discard_token(),
            container.refresh_account(),
            installation.clock,
        ),
        work=threading.Event(),
        threads=1,
        threads_per_target=1,
        chores=[Chore("e", timedelta(hours=1), have_more)],
    )
    runner.start()
    wait_until(lambda: any(seen))
    runner.stop()
    assert seen.count(True) == 1


def test_a_chore_that_fails_stops_neither_the_next_one_nor_what_is_due(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    installation.clock.advance(timedelta(seconds=30))
    container, failed, done = installation.container, list[str](), list[str]()

    def fail() -> None:
        failed.append("c")
        raise ValueError("a record that cannot be read")

    runner = JobRunner(
        take=jobs_at_psps(
            container.settle_in_worker(),
            container.discard_token(),
            container.refresh_account(),
            installation.clock,
        ),
        work=threading.Event(),
        threads=1,
        threads_per_target=1,
        chores=[
            Chore("c", timedelta(hours=1), fail),
            Chore("d", timedelta(0), lambda: done.append("d")),
        ],
    )
    with capture_logs() as lines:
        runner.start()
        wait_until(lambda: installation.session(session.token_id).is_settled)
        wait_until(lambda: len(done) > 2)
        runner.stop()

    # Not each second: it would write a line, and take what a failure takes, again and again.
    assert failed == ["c"]
    assert [line["event"] for line in lines].count("reconciler_fault") == 1


@pytest.mark.parametrize("fault", [ServiceUnavailable, RecordUnreadable, ValueError])
def test_a_job_that_fails_gives_its_place_to_the_next(fault: type[Exception]) -> None:
    begun: list[Job[PspAccount]] = []

    def fail() -> Result:
        raise fault

    def take(busy: Collection[PspAccount]) -> Job[PspAccount] | None:
        if AT_PSP in busy or len(begun) == 3:
            return None
        begun.append(Job(target=AT_PSP, do=fail))
        return begun[-1]

    runner = JobRunner[PspAccount](
        take={"sessions": take}, work=threading.Event(), threads=1, threads_per_target=1
    )
    with capture_logs():
        runner.start()
        try:
            wait_until(lambda: len(begun) == 3)
        finally:
            runner.stop()


def test_work_is_not_said_to_be_back_by_a_look_that_writes_nothing() -> None:
    seconds, looks = [0.0], list[int]()

    def look(_: object) -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise ServiceUnavailable
        # On a full disk, all can be read.
        seconds[0] = 1_000.0

    runner = JobRunner[PspAccount](
        take={"sessions": look},
        work=threading.Event(),
        threads=1,
        threads_per_target=1,
        work_log=WorkLog(lambda: seconds[0]),
    )
    with capture_logs() as lines:
        runner.start()
        wait_until(lambda: len(looks) > 2)
        runner.stop()

    assert [line["event"] for line in lines] == ["reconciler_without_storage"]
