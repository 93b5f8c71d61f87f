from __future__ import annotations

from datetime import timedelta

import pytest

from adapters.psp_suite.clock import START
from domain.sessions.end import SessionStatus
from domain.sessions.polling import next_poll_at
from tests.builders import a_discard
from tests.databases import change_by_hand, committed
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation, Trouble


# Shows F37.
def test_an_unopened_link_expires_without_a_call_to_the_psp(installation: Installation) -> None:
    session = installation.add_card()
    installation.clock.advance(timedelta(minutes=30))
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.provider.calls == []


@pytest.mark.parametrize(
    ("passed_seconds", "next_seconds"),
    [
        *[(0, 30), (29, 30), (30, 120), (119, 120), (120, 600), (600, 1200), (1199, 1200)],
        (1200, 1800),
        # The clock was a day ahead when the page was opened.
        (-86_400, 600 - 86_400),
    ],
)
def test_the_psp_is_asked_about_an_open_page_on_a_fixed_schedule(
    passed_seconds: int, next_seconds: int
) -> None:
    now = START + timedelta(seconds=passed_seconds)

    assert next_poll_at(START, now) == START + timedelta(seconds=next_seconds)


# Shows I4, F37.
def test_the_psp_is_asked_about_an_abandoned_page_on_schedule(installation: Installation) -> None:
    session = installation.opened_session()
    asked_at = []
    for _ in range(190):  # of ten seconds each: the session's half an hour, and a little
        before = len(installation.provider.calls)
        installation.reconcile()
        if len(installation.provider.calls) > before:
            asked_at.append(int((installation.clock.now() - START).total_seconds()))
        installation.clock.advance(timedelta(seconds=10))

    assert asked_at == [30, 120, 600, 1200, 1800]
    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    assert installation.provider.calls[-3:] == ["outcome", "close", "outcome"]


# Shows F6, F28, F31.
def test_a_session_that_a_dead_process_had_taken_is_settled_after_the_lease_ends(
    installation: Installation,
) -> None:
    session = installation.session_with_card()
    installation.clock.advance(timedelta(seconds=30))
    now = installation.clock.now()
    with committed(installation.storage) as unit:
        assert unit.sessions.take_due(now, until=now + timedelta(minutes=1)) is not None

    assert installation.reconcile().is_idle
    installation.clock.advance(timedelta(minutes=1))
    assert installation.reconcile().jobs["sessions"] == 1
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


# Shows F5.
def test_a_discard_is_retried_until_the_psp_responds(installation: Installation) -> None:
    installation.removed_card()
    installation.provider.have(Trouble.AFTER_IT_ACTED)
    installation.reconcile()
    installation.clock.advance(timedelta(seconds=29))
    assert installation.reconcile().is_idle

    installation.provider.recover()
    installation.clock.advance(timedelta(seconds=1))
    assert installation.reconcile().jobs["discards"] == 1
    assert installation.tokens_at_psp() == frozenset()
    assert installation.reconcile().is_idle


@pytest.mark.parametrize("trouble", [Trouble.BEFORE_IT_ACTED, Trouble.REFUSED])
def test_the_worker_counts_all_jobs_of_a_round(
    installation: Installation, trouble: Trouble
) -> None:
    for number in (GOOD_CARD, OTHER_GOOD_CARD):
        installation.removed_card(number)
        installation.opened_session()
    installation.provider.have(trouble)
    rounds = []
    for _ in range(26):
        installation.clock.advance(timedelta(hours=1))
        rounds.append(installation.reconcile())

    first, last = rounds[0], rounds[-1]
    assert first.silent == 0
    assert (last.jobs["sessions"], last.jobs["discards"], last.silent) == (2, 2, 4)


def test_a_session_whose_psp_is_no_longer_installed_waits_without_an_error(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.container.worker_psps().clear()
    installation.clock.advance(timedelta(seconds=30))

    assert installation.reconcile().faults == []
    assert installation.session(session.token_id).unanswered_since is not None


# Shows F32.
def test_an_unreadable_session_does_not_stop_the_worker(installation: Installation) -> None:
    broken, good = installation.opened_session(), installation.opened_session()
    installation.type_card(good)
    change_by_hand(
        installation.storage,
        "UPDATE card_sessions SET configuration = '{}' WHERE token_id = :token_id",
        token_id=broken.token_id,
    )
    installation.clock.advance(timedelta(seconds=30))

    done = installation.reconcile()

    assert len(done.faults) == 1
    assert installation.session(good.token_id).status is SessionStatus.COMPLETED


# Shows I7.
def test_the_token_of_an_active_account_is_not_discarded(installation: Installation) -> None:
    account = installation.stored_card()
    with committed(installation.storage) as unit:
        unit.discards.add(
            a_discard(merchant_account=account.merchant_account, token=account.token, due_at=START)
        )

    installation.reconcile()

    assert installation.tokens_at_psp() == {account.token}


def test_a_discard_that_another_worker_took_over_is_left_alone(installation: Installation) -> None:
    installation.removed_card()
    mine = installation.container.discard_token().take()
    installation.clock.advance(timedelta(minutes=2))
    theirs = installation.container.discard_token().take()
    assert mine is not None
    assert theirs is not None
    assert theirs.begun_at == mine.begun_at

    installation.container.discard_token()(mine)

    assert installation.provider.calls.count("discard") == 0
    installation.container.discard_token()(theirs)
    assert installation.tokens_at_psp() == frozenset()


def test_the_last_scheduled_call_is_at_the_end_of_the_session(installation: Installation) -> None:
    installation.configure(session_minutes=125)
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=121))
    installation.reconcile()

    assert installation.session(session.token_id).due_at == session.expires_at
