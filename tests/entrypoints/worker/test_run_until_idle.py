from __future__ import annotations

from collections import Counter
from datetime import timedelta
from pathlib import Path

from structlog.testing import capture_logs

from domain.events.event import EventType
from domain.sessions.session import SessionStatus
from domain.worker.jobs import End
from domain.worker.reconcile import MAX_PER_ROUND
from entrypoints.worker.run_until_idle import run_until_idle
from tests.event_receiver import EventReceiver
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation, Trouble


def test_the_command_works_until_nothing_is_due(installation: Installation) -> None:
    sessions = [installation.add_card() for _ in range(MAX_PER_ROUND + 1)]
    installation.clock.advance(timedelta(minutes=30))

    rounds = run_until_idle(installation.reconcile)

    assert [done.jobs["sessions"] for done in rounds] == [MAX_PER_ROUND, 1, 0]
    assert installation.session(sessions[-1].token_id).status is SessionStatus.EXPIRED


def test_the_command_ends_a_long_chore_after_what_is_due(installation: Installation) -> None:
    session = installation.add_card()
    installation.clock.advance(timedelta(minutes=30))
    seen: list[SessionStatus] = []

    def is_more() -> bool:
        seen.append(installation.session(session.token_id).status)
        return len(seen) < 3

    run_until_idle(installation.reconcile, chores=[is_more])

    assert seen == [SessionStatus.OPEN, SessionStatus.EXPIRED, SessionStatus.EXPIRED]


def test_the_command_tries_an_endpoint_that_takes_no_event_once(tmp_path: Path) -> None:
    installation = Installation(tmp_path, CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")
    with EventReceiver() as away, EventReceiver() as taking:
        away.status = 503
        for receiver in (away, taking):
            installation.container.add_event_endpoint()(
                url=receiver.url, types=[EventType.ACCOUNT_STORED]
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


def test_what_became_of_the_work_is_in_the_log(tmp_path: Path) -> None:
    installation = Installation(tmp_path, CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")
    with EventReceiver() as taking, EventReceiver() as away:
        away.status = 503
        for receiver in (taking, away):
            installation.container.add_event_endpoint()(
                url=receiver.url, types=[EventType.ACCOUNT_STORED]
            )
        # One has a card, one waits for its guest; another card is to be discarded.
        installation.removed_card(OTHER_GOOD_CARD)
        installation.session_with_card()
        installation.opened_session()
        installation.clock.advance(timedelta(seconds=30))
        installation.provider.have(Trouble.BEFORE_IT_ACTED)
        without_psp = reconciled(installation)
        installation.provider.recover()
        installation.clock.advance(timedelta(minutes=1))
        with_psp = reconciled(installation)
    installation.close()

    assert without_psp == {"waiting_for_psp": 3, "delivered": 1, "not_delivered": 1}
    assert with_psp == {
        "settled": 1,
        "open": 1,
        "discarded": 1,
        "delivered": 1,
        "not_delivered": 1,
    }


def reconciled(installation: Installation) -> Counter[str]:
    """Run the command, and return the sums of what its lines say."""
    with capture_logs() as logs:
        run_until_idle(installation.reconcile)
    lines = [line for line in logs if line["event"] == "reconciled"]
    return Counter(
        {each.value: total for each in End if (total := sum(line[each.value] for line in lines))}
    )


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
