from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from domain.errors import InvalidField, ServiceUnavailable
from domain.hosted_payments.link import LinkCancelled
from domain.identifiers import CallerName
from domain.permissions import Caller, Permission
from domain.sessions.end import SessionStatus
from domain.sessions.polling import Progress
from tests.databases import change_by_hand
from tests.installation import OTHER_GOOD_CARD, REDIRECT_URI, Installation, Trouble

SECOND = timedelta(seconds=1)
KIOSK = Caller(name=CallerName("kiosk"), permissions=frozenset(Permission))


def cancel_all_of(installation: Installation) -> int:
    """Cancel all open sessions of the caller, to whom a token was issued."""
    installation.token_for(installation.caller)
    return installation.container.cancel_sessions_of_caller()(installation.caller.name)


def test_cancelling_a_session_expires_its_link_immediately(installation: Installation) -> None:
    session = installation.add_card()
    installation.clock.advance(SECOND)

    cancelled = installation.cancel_session(session)

    now = installation.clock.now()
    assert (cancelled.status, cancelled.progress) == (SessionStatus.EXPIRED, Progress.CANCELLED)
    assert (cancelled.cancelled_at, cancelled.expires_at) == (now, now)
    assert cancelled.cancelled_by == f"caller:{installation.caller.name}"
    assert cancelled == installation.session(session.token_id)
    with pytest.raises(LinkCancelled):
        installation.open_page(session)
    assert installation.provider.calls == []


def test_a_cancelled_session_whose_page_stays_open_ends_when_the_page_ends(
    installation: Installation,
) -> None:
    installation.provider.close = lambda *_: None
    session = installation.opened_session()
    page = session.current_attempt.page
    assert page is not None
    installation.clock.advance(SECOND)
    installation.cancel_session(session)
    installation.provider.calls.clear()
    while installation.clock.now() < page.ends_at:
        installation.reconcile()
        assert installation.session(session.token_id).status is SessionStatus.OPEN
        installation.clock.advance(timedelta(seconds=10))

    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED
    # The calls follow the schedule: two calls each time.
    assert len(installation.provider.calls) < 20


# Shows I3.
@pytest.mark.parametrize("is_center_readable", [True, False])
def test_a_card_collected_after_the_cancellation_is_discarded(
    installation: Installation, is_center_readable: bool
) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.cancel_session(session)
    installation.clock.advance(SECOND)
    installation.type_card(session)
    installation.provider.recover()
    if not is_center_readable:
        change_by_hand(
            installation.storage, "UPDATE payment_configurations SET cards_per_guest = 'three'"
        )
    installation.clock.advance(timedelta(seconds=30))

    installation.reconcile()

    ended = installation.session(session.token_id)
    assert (ended.status, ended.failure) == (SessionStatus.EXPIRED, None)
    assert installation.accounts() == ()
    assert installation.tokens_at_psp() == frozenset()


# Shows I3.
def test_the_worker_completes_a_cancellation_after_an_outage(installation: Installation) -> None:
    for number in ("4242424242424242", None):
        session = installation.opened_session()
        if number:
            installation.type_card(session, number)
        installation.clock.advance(SECOND)
        installation.provider.have(Trouble.BEFORE_IT_ACTED)

        waiting = installation.cancel_session(session)

        assert (waiting.status, waiting.progress) == (SessionStatus.OPEN, Progress.CANCELLED)
        with pytest.raises(LinkCancelled):
            installation.open_page(session)
        installation.clock.advance(SECOND)
        assert installation.cancel_session(session).cancelled_at == waiting.cancelled_at
        installation.provider.recover()
        installation.clock.advance(timedelta(seconds=30))
        installation.reconcile()
        ended = installation.session(session.token_id)
        assert ended.status is (SessionStatus.COMPLETED if number else SessionStatus.EXPIRED)
        assert ended.expires_at == waiting.cancelled_at


def test_a_cancellation_is_stored_even_if_settling_fails(installation: Installation) -> None:
    session = installation.opened_session()

    def go_away() -> None:
        raise ServiceUnavailable

    installation.provider.before = lambda _, __: installation.before_next_write(go_away)

    waiting = installation.cancel_session(session)

    assert (waiting.status, waiting.cancelled_at) == (SessionStatus.OPEN, waiting.due_at)
    assert installation.session(session.token_id) == waiting


@pytest.mark.parametrize("is_psp_silent", [False, True])
def test_a_guest_is_not_sent_to_a_page_created_after_the_cancellation(
    installation: Installation, is_psp_silent: bool
) -> None:
    session = installation.add_card()

    def cancel() -> None:
        if is_psp_silent:
            installation.provider.have(Trouble.BEFORE_IT_ACTED)
        installation.cancel_session(session)
        installation.provider.recover()

    installation.provider.meanwhile["start"] = cancel

    with pytest.raises(LinkCancelled):
        installation.open_page(session)
    installation.reconcile()
    ended = installation.session(session.token_id)
    assert (ended.status, ended.expires_at) == (SessionStatus.EXPIRED, ended.cancelled_at)
    assert installation.psp.page(installation.page_reference(session)).is_over


def test_a_cancelled_link_stays_closed_if_the_clock_is_behind(installation: Installation) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.cancel_session(session)
    installation.provider.recover()
    installation.clock.advance(timedelta(minutes=-2))

    with pytest.raises(LinkCancelled):
        installation.open_page(session)
    installation.settle(session.token_id)
    assert installation.session(session.token_id).status is SessionStatus.EXPIRED


def test_cancelling_an_ended_session_changes_nothing(installation: Installation) -> None:
    unopened, failed = installation.add_card(), installation.opened_session()
    cancelled = installation.cancel_session(unopened)
    installation.stored_card()
    installation.type_card_and_return(failed)
    installation.clock.advance(timedelta(hours=1))
    late, not_settled = installation.add_card(), installation.add_card()
    installation.clock.advance(timedelta(hours=1))
    assert installation.cancel_session(not_settled).expires_at == not_settled.expires_at
    installation.reconcile()
    calls = list(installation.provider.calls)

    assert installation.cancel_session(unopened) == cancelled
    for session, status in ((failed, SessionStatus.FAILED), (late, SessionStatus.EXPIRED)):
        before = installation.session(session.token_id)
        assert installation.cancel_session(session) == before
        assert before.status is status
        assert before.progress is not Progress.CANCELLED
    assert installation.provider.calls == calls


def test_a_browser_that_returns_after_the_cancellation_changes_nothing(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    cancelled = installation.cancel_session(session)

    assert installation.return_to_shop(session) == REDIRECT_URI
    assert installation.session(session.token_id).progress is cancelled.progress


class TestSessionsOfACaller:
    def test_all_sessions_of_a_caller_can_be_cancelled(self, installation: Installation) -> None:
        stored = installation.stored_card()
        kept = installation.add_card(KIOSK)
        unopened = installation.add_card()
        opened, collected = (installation.opened_session() for _ in range(2))
        installation.type_card(collected, OTHER_GOOD_CARD)
        installation.clock.advance(SECOND)

        assert cancel_all_of(installation) == 3
        with pytest.raises(LinkCancelled):
            installation.open_page(unopened)
        cancelled = installation.session(opened.token_id)
        assert cancelled.progress is Progress.CANCELLED
        assert cancelled.cancelled_by == installation.container.note_act().operator
        installation.reconcile()

        ended, done = SessionStatus.EXPIRED, SessionStatus.COMPLETED
        found = [unopened.token_id, opened.token_id, collected.token_id, stored.token_id]
        assert [installation.session(each).status for each in found] == [ended, ended, done, done]
        assert installation.psp.page(installation.page_reference(opened)).is_over
        assert installation.session(kept.token_id) == kept
        assert cancel_all_of(installation) == 0

    def test_a_session_that_ends_meanwhile_is_left_alone(self, installation: Installation) -> None:
        session = installation.session_with_card()
        cancel_sessions_of_caller = installation.container.cancel_sessions_of_caller()
        installation.token_for(installation.caller)
        installation.before_next_write(lambda: installation.settle(session.token_id))

        assert cancel_sessions_of_caller(installation.caller.name) == 0
        assert installation.session(session.token_id).status is SessionStatus.COMPLETED

    def test_an_unreadable_session_does_not_stop_the_cancellation_of_other_sessions(
        self, installation: Installation
    ) -> None:
        unreadable, readable = installation.add_card(), installation.add_card()
        change_by_hand(
            installation.storage,
            "UPDATE card_sessions SET configuration = '{}' WHERE token_id = :token_id",
            token_id=unreadable.token_id,
        )

        assert cancel_all_of(installation) == 1
        assert installation.session(readable.token_id).cancelled_at is not None

    def test_cancelling_the_sessions_of_an_unknown_caller_is_refused(
        self, installation: Installation
    ) -> None:
        session = installation.add_card(replace(KIOSK, name=CallerName("jwt:shop")))
        cancel = installation.container.cancel_sessions_of_caller()
        with pytest.raises(InvalidField, match=r"^caller must be a caller that `cardonfile token"):
            cancel("web-shop ")
        assert installation.session(session.token_id) == session
        # The caller from an identity provider has no token here.
        assert cancel("jwt:shop") == 1
        assert installation.session(session.token_id).cancelled_at is not None
