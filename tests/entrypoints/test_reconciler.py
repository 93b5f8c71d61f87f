from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from domain.card_sessions import SessionStatus
from domain.errors import ServiceUnavailable
from domain.reconcile import Round
from entrypoints import reconciler
from entrypoints.reconciler import ReconcilerThread, run_until_idle
from tests.installation import Installation, Trouble
from tests.waiting import wait_until


def test_the_thread_settles_what_is_due_once_it_is_woken(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    work = threading.Event()
    thread = ReconcilerThread(installation.reconcile, work)
    thread.start()
    installation.clock.advance(timedelta(seconds=30))
    work.set()

    wait_until(lambda: installation.session(session.token_id).status is SessionStatus.COMPLETED)
    thread.stop()


@pytest.mark.parametrize("fault", [ServiceUnavailable(), ZeroDivisionError()])
def test_the_thread_outlives_faults(fault: Exception) -> None:
    rounds: list[int] = []

    def reconcile(*, is_stopping: Callable[[], bool]) -> Round:
        rounds.append(1)
        if len(rounds) == 1:
            raise fault
        return Round()

    work = threading.Event()
    thread = ReconcilerThread(reconcile, work)
    with capture_logs() as logs:
        thread.start()
        work.set()
        wait_until(lambda: len(rounds) > 1)
        thread.stop()

    assert logs[0]["event"] in ("reconciler_without_storage", "reconciler_fault")


def test_a_storage_that_is_away_is_in_the_log_once_and_so_is_its_return() -> None:
    rounds: list[int] = []

    def reconcile(*, is_stopping: Callable[[], bool]) -> Round:
        rounds.append(1)
        work.set()
        if len(rounds) in (2, 3, 4, 7):
            raise ServiceUnavailable from OSError("/srv/cards.db: disk I/O error")
        return Round()

    work = threading.Event()
    thread = ReconcilerThread(reconcile, work)
    with capture_logs() as logs:
        thread.start()
        wait_until(lambda: len(rounds) > 8)
        thread.stop()

    away, back = "reconciler_without_storage", "reconciler_storage_back"
    assert [each["event"] for each in logs] == [away, back, away, back]
    assert logs[0]["cause"] == "/srv/cards.db: disk I/O error"


def test_the_thread_outlives_a_log_that_cannot_be_written(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(reconciler.log, "info", broken, raising=False)
    session = installation.opened_session()
    installation.type_card(session)
    work = threading.Event()
    thread = ReconcilerThread(installation.reconcile, work)
    thread.start()
    for _ in range(2):
        installation.clock.advance(timedelta(seconds=30))
        work.set()
    wait_until(lambda: installation.session(session.token_id).status is SessionStatus.COMPLETED)
    second = installation.opened_session()
    installation.clock.advance(timedelta(minutes=31))
    work.set()

    wait_until(lambda: installation.session(second.token_id).status is SessionStatus.EXPIRED)
    thread.stop()


def test_the_command_works_until_nothing_is_due(installation: Installation) -> None:
    sessions = [installation.add_card() for _ in range(150)]
    installation.clock.advance(timedelta(minutes=30))

    rounds = run_until_idle(installation.reconcile)

    assert sum(each.sessions for each in rounds) == 150
    assert installation.session(sessions[-1].token_id).status is SessionStatus.EXPIRED


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
