from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final, TypeAlias

import pytest
from structlog.testing import capture_logs

from domain.errors import ServiceUnavailable
from domain.identifiers import CenterId, MerchantAccount, ProviderName, PspAccount
from domain.sessions.session import CardSession
from domain.storage import RecordUnreadable
from domain.worker.jobs import Job, JobResult, jobs_at_psps
from entrypoints.worker import job_runner, reports
from entrypoints.worker.job_runner import Chore, JobRunner
from entrypoints.worker.reports import WorkLog
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center
from tests.installation import MERCHANT, Installation, Trouble
from tests.simulation.ports import WatchedStorage
from tests.waiting import LIMIT_SECONDS, wait_until

AT_PSP: Final = PspAccount(ProviderName("fake"), MERCHANT)


def a_runner(installation: Installation, **settings: Any) -> JobRunner[PspAccount]:
    """Return a runner with four threads for the jobs at PSPs."""
    container = installation.container
    return JobRunner(
        **{
            "take": container.jobs_at_psps(),
            "work_log": WorkLog(),
            "threads": 4,
            "threads_per_target": 3,
            "capacities": container.breakers().capacities,
            **settings,
        }
    )


@contextmanager
def running(runner: JobRunner[PspAccount]) -> Iterator[None]:
    """Let a runner work in threads within the block."""
    runner.start()
    try:
        yield
    finally:
        runner.stop()


def in_threads(runner: JobRunner[PspAccount], is_done: Callable[[], bool]) -> None:
    with running(runner):
        wait_until(is_done)


def in_turn(runner: JobRunner[PspAccount], is_done: Callable[[], bool]) -> None:
    runner.run_until_idle()
    assert is_done()


Run: TypeAlias = Callable[[JobRunner[PspAccount], Callable[[], bool]], None]
each_way: Final = pytest.mark.parametrize("run", [in_turn, in_threads])


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


# Shows F22.
def test_calls_that_hang_at_one_merchant_account_do_not_delay_other_merchant_accounts(
    installation: Installation,
) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID, merchant_account=MerchantAccount("harbor"))
    stuck = sessions_with_a_card(installation, 20)
    others = sessions_with_a_card(installation, 5, OTHER_CENTER_ID)
    goes_on = threading.Event()
    installation.provider.before = lambda _, account: (
        account != MERCHANT or goes_on.wait(LIMIT_SECONDS)
    )

    with running(a_runner(installation)):
        try:
            wait_until(lambda: all(settled(installation, others)))
            assert not any(settled(installation, stuck))
        finally:
            goes_on.set()
        wait_until(lambda: all(settled(installation, stuck)))


def test_the_job_runner_claims_at_most_one_job_per_thread(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID, merchant_account=MerchantAccount("harbor"))
    sessions = [
        *sessions_with_a_card(installation, 4),
        *sessions_with_a_card(installation, 4, OTHER_CENTER_ID),
    ]
    under_way, goes_on = threading.Semaphore(0), threading.Event()

    def hang(_: str, __: MerchantAccount) -> None:
        under_way.release()
        goes_on.wait(LIMIT_SECONDS)

    installation.provider.before = hang
    work = threading.Event()
    with running(a_runner(installation, work=work)):
        try:
            for _ in range(4):
                assert under_way.acquire(timeout=LIMIT_SECONDS)
            # The worker looks again each time.
            for _ in range(5):
                work.set()
                wait_until(lambda: not work.is_set())
            due = [installation.session(session.token_id).due_at for session in sessions]
            assert sum(at is not None and at > installation.clock.now() for at in due) == 4
        finally:
            goes_on.set()


@pytest.mark.parametrize("fault", [ServiceUnavailable, RecordUnreadable, ValueError])
def test_a_job_that_fails_does_not_keep_its_merchant_account_busy(fault: type[Exception]) -> None:
    begun: list[Job[PspAccount]] = []

    def fail() -> JobResult:
        raise fault

    def take(busy: Collection[PspAccount]) -> Job[PspAccount] | None:
        if AT_PSP in busy or len(begun) == 3:
            return None
        begun.append(Job(target=AT_PSP, do=fail))
        return begun[-1]

    runner = JobRunner[PspAccount](take={"sessions": take}, work_log=WorkLog())
    with capture_logs():
        in_threads(runner, lambda: len(begun) == 3)


def test_finding_no_due_job_does_not_count_as_recovery_from_a_storage_outage() -> None:
    seconds, looks = [0.0], list[int]()

    def look(_: object) -> None:
        looks.append(len(looks))
        if len(looks) == 1:
            raise ServiceUnavailable
        # On a full disk, all can be read.
        seconds[0] = 1_000.0

    runner = JobRunner[PspAccount](
        take={"sessions": look},
        work_log=WorkLog(lambda: seconds[0]),
    )
    with capture_logs() as lines:
        in_threads(runner, lambda: len(looks) > 2)

    assert [line["event"] for line in lines] == ["reconciler_without_storage"]


# Shows F23.
@each_way
def test_a_job_that_fails_does_not_stop_other_jobs(installation: Installation, run: Run) -> None:
    sessions = sessions_with_a_card(installation, 5)
    stumble_once(installation)

    with capture_logs() as lines:
        run(a_runner(installation), lambda: settled(installation, sessions).count(True) >= 4)

    (line,) = (line for line in lines if line["event"] == "reconciling_one_failed")
    assert isinstance(line["exc_info"], ZeroDivisionError)


def test_a_job_that_fails_does_not_stop_other_jobs_even_if_logging_fails_too(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    sessions = sessions_with_a_card(installation, 5)
    stumble_once(installation)
    for log in (job_runner.log, reports.log):
        for level in ("info", "warning", "error"):
            monkeypatch.setattr(log, level, broken, raising=False)

    in_threads(a_runner(installation), lambda: settled(installation, sessions).count(True) >= 4)


def stumble_once(installation: Installation) -> None:
    """Let the next call about a session raise an error."""
    installation.provider.meanwhile["outcome"] = lambda: 1 // 0


def total(of: str, lines: Iterable[Mapping[str, Any]]) -> int:
    """Return the sum over all log lines, because a busy runner logs its work in several lines."""
    return sum(line.get(of, 0) for line in lines)


def test_sessions_are_settled_after_an_outage_of_the_psp_that_lasted_a_day(
    installation: Installation,
) -> None:
    sessions = sessions_with_a_card(installation, 5)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    for hours in (0, 24):
        installation.clock.advance(timedelta(hours=hours))
        with capture_logs() as lines:
            a_runner(installation).run_until_idle()

        assert total("waiting_for_psp", lines) == 5
        assert total("silent", lines) == (5 if hours else 0)

    installation.provider.recover()
    installation.clock.advance(timedelta(hours=1))
    a_runner(installation).run_until_idle()
    assert all(settled(installation, sessions))


@each_way
def test_due_jobs_run_between_the_parts_of_a_long_periodic_task(
    installation: Installation, run: Run
) -> None:
    (session,), seen = sessions_with_a_card(installation, 1), []

    def have_more() -> bool:
        seen.append(installation.session(session.token_id).is_settled)
        return not seen[-1]

    chore = Chore("e", timedelta(hours=1), have_more, rest_seconds=0.001)
    run(a_runner(installation, chores=[chore]), lambda: any(seen))

    assert seen.count(True) == 1


@each_way
def test_a_periodic_task_that_fails_does_not_stop_other_tasks_or_due_jobs(
    installation: Installation, run: Run
) -> None:
    sessions = sessions_with_a_card(installation, 1)
    failed, done = list[str](), list[str]()

    def fail() -> None:
        failed.append("c")
        raise ValueError("a record that cannot be read")

    def have_more() -> bool:
        done.append("d")
        return len(done) < 3

    chores = [
        Chore("c", timedelta(hours=1), fail),
        Chore("d", timedelta(hours=1), have_more, rest_seconds=0.001),
    ]
    with capture_logs() as lines:
        run(
            a_runner(installation, chores=chores),
            lambda: all(settled(installation, sessions)) and len(done) == 3,
        )

    # Not each time: it would write a line, and take what a failure takes, again and again.
    assert failed == ["c"]
    assert [line["event"] for line in lines].count("reconciler_fault") == 1


def test_a_periodic_task_is_repeated_when_it_is_due(installation: Installation) -> None:
    work, done = threading.Event(), list[str]()
    chores = [
        Chore("a", timedelta(0), lambda: done.append("often")),
        Chore("b", timedelta(hours=1), lambda: done.append("seldom")),
    ]

    in_threads(a_runner(installation, chores=chores, work=work), lambda: done.count("often") > 3)

    assert done.count("seldom") == 1


def test_looking_for_jobs_does_not_write_to_the_database_if_no_job_is_due(
    installation: Installation,
) -> None:
    installation.opened_session()
    installation.removed_card()
    installation.reconcile()
    calls: list[str] = []
    container, watched = (
        installation.container,
        WatchedStorage(installation.storage, lambda call, *_: calls.append(call)),
    )
    take = jobs_at_psps(
        replace(container.settle_in_worker(), storage=watched),
        replace(container.discard_token(), storage=watched),
        replace(container.refresh_account(), storage=watched),
        installation.clock,
    )

    a_runner(installation, take=take).run_until_idle()

    assert "storage.read" in calls
    assert "storage.write" not in calls


def test_sessions_stay_due_while_their_merchant_account_has_no_capacity_for_calls(
    installation: Installation,
) -> None:
    sessions = sessions_with_a_card(installation, 2)

    for capacity, expected in ((0, False), (1, True)):
        capacities = {AT_PSP: capacity}
        a_runner(installation, capacities=lambda _, found=capacities: found).run_until_idle()
        assert settled(installation, sessions) == [expected] * 2


def test_due_discards_do_not_wait_until_all_due_sessions_are_settled(
    installation: Installation,
) -> None:
    installation.removed_card()
    sessions_with_a_card(installation, 3)
    installation.provider.calls.clear()

    a_runner(installation).run_until_idle()

    assert installation.provider.calls.index("discard") <= 1
