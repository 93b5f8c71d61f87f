"""Clocks that jump, and machines whose clocks differ."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.samples import NOW
from domain.errors import CardLimitReached
from domain.events.event import LONGEST_WAIT, DeliveryStatus, EventType
from domain.hosted_payments.link import LinkExpired
from domain.sessions.end import SessionStatus
from domain.worker.leave_heartbeat import IsWorkerMissing
from tests.builders import a_discard, a_worker, an_account
from tests.databases import committed
from tests.fuzzing import TIMES
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation, Trouble

MINUTE = timedelta(minutes=1)
HOUR: Final = timedelta(hours=1)
JUMPS: Final = [MINUTE, timedelta(days=1), timedelta(days=365)]
DAYS = 3


# Shows I4, F40.
@settings(max_examples=6 * TIMES)
@given(st.lists(st.integers(-90, 90).map(MINUTE.__mul__), min_size=6, max_size=6))
@example([timedelta(0)] * 6)
@example([-MINUTE * 90, MINUTE * 90] * 3)
def test_a_session_leaves_no_unused_card_token_even_if_the_clock_jumps(
    tmp_path_factory: pytest.TempPathFactory, jumps: list[timedelta]
) -> None:
    installation = Installation(tmp_path_factory.mktemp("clocks"))
    session = installation.add_card()

    def type_card() -> None:
        if installation.session(session.token_id).attempt is not None:
            installation.type_card(session)

    steps: tuple[Callable[[], object], ...] = (
        lambda: installation.open_page(session),
        type_card,
        lambda: installation.return_to_shop(session),
        installation.reconcile,
        lambda: installation.open_page(session),
        installation.reconcile,
    )
    for step, jump in zip(steps, jumps, strict=True):
        installation.clock.advance(jump)
        with suppress(LinkExpired):
            step()
    for _ in range(DAYS * 8):
        installation.clock.advance(3 * HOUR)
        installation.reconcile()

    ended = installation.session(session.token_id)
    assert ended.status in (SessionStatus.COMPLETED, SessionStatus.EXPIRED)
    assert {each.token for each in installation.accounts()} == installation.tokens_at_psp()
    assert [each.account_id for each in installation.accounts()] == (
        [ended.account_id] if ended.account_id else []
    )
    installation.close()


@contextmanager
def ahead(installation: Installation, jump: timedelta) -> Iterator[None]:
    """Set the clock ahead within the block."""
    with pytest.MonkeyPatch.context() as jumped:
        jumped.setattr(SettableClock, "is_steady", lambda _: False)
        installation.clock.advance(jump)
        yield
        installation.clock.advance(-jump)


# Shows F40.
@pytest.mark.parametrize("jump", JUMPS)
def test_a_clock_that_was_ahead_delays_a_job_by_at_most_the_longest_wait_of_that_job(
    installation: Installation, jump: timedelta
) -> None:
    # No event is sent to this address, because the address is not public.
    installation.has_endpoint("https://127.0.0.1", [EventType.ACCOUNT_REMOVED])
    installation.configure(link_minutes=3 * 24 * 60)
    silent, opened = (installation.opened_session() for _ in range(2))
    installation.removed_card(OTHER_GOOD_CARD)
    installation.clock.advance(2 * HOUR)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    with ahead(installation, jump):
        installation.settle(silent.token_id)
        installation.container.discard_token().take()
        installation.container.deliver_event().take()
        installation.provider.recover()
        installation.settle(opened.token_id)
    for session in (silent, opened):
        installation.type_card(session)

    for _ in range(7):
        installation.reconcile()
        installation.clock.advance(10 * MINUTE)

    statuses = [installation.session(each.token_id).status for each in (silent, opened)]
    assert SessionStatus.OPEN not in statuses
    (delivery,) = installation.deliveries()
    assert delivery.attempts or jump < LONGEST_WAIT
    assert installation.tokens_at_psp() == {each.token for each in installation.accounts()}


# Shows F40.
@pytest.mark.parametrize("jump", JUMPS)
def test_calls_are_repeated_as_usual_after_an_outage_that_began_while_the_clock_was_ahead(
    installation: Installation, jump: timedelta
) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    with ahead(installation, jump):
        installation.settle(session.token_id)
    for wait in (30, 30, 60, 120):
        installation.settle(session.token_id)
        asked = installation.session(session.token_id)
        assert asked.due_at == installation.clock.now() + timedelta(seconds=wait)
        installation.clock.advance(timedelta(seconds=wait))

    discard = a_discard().psp_unavailable(NOW + jump)
    account = an_account().psp_unavailable(NOW + jump)
    for passed, wait in ((0, 30), (30, 30), (60, 60)):
        now = NOW + timedelta(seconds=passed)
        discard, account = discard.psp_unavailable(now), account.psp_unavailable(now)
        assert discard.due_at == account.due_at == now + timedelta(seconds=wait)


# Shows F40.
@pytest.mark.parametrize("jump", JUMPS)
def test_an_idempotency_key_still_works_after_the_clock_was_ahead(
    installation: Installation, jump: timedelta
) -> None:
    first = installation.add_card(idempotency_key="key")
    with ahead(installation, jump):
        installation.container.forget_old_records()()
        assert installation.add_card(idempotency_key="key") == first
        late = installation.add_card(idempotency_key="late")

    assert installation.add_card(idempotency_key="key") == first
    assert installation.add_card(idempotency_key="late") == late


# Shows F40.
@pytest.mark.parametrize("jump", JUMPS)
def test_a_clock_that_is_ahead_does_not_send_events_or_delete_records_early(
    installation: Installation, jump: timedelta
) -> None:
    installation.has_endpoint("https://127.0.0.1")
    account = installation.stored_card(GOOD_CARD)
    assert account.expiry_notice_at is not None
    notice_at = account.expiry_notice_at
    account = replace(account, keep_until=notice_at)
    installation.put_account(account)
    installation.clock.advance(notice_at - MINUTE - installation.clock.now())
    (stored,) = installation.deliveries()
    with committed(installation.storage) as unit:
        unit.event_deliveries.update(stored.failed_for_good("500", installation.clock.now()))
    with ahead(installation, jump):
        assert not installation.container.notice_expiry()()
        assert not installation.container.remove_ended_cards()()
        assert not installation.container.forget_old_records()()

    assert installation.account(account.account_id) == account
    (kept,) = installation.deliveries()
    assert kept.status is DeliveryStatus.FAILED


# Shows F40.
@pytest.mark.installed(CARDONFILE_CARD_TESTING_LIMITS="guest=1/off")
@pytest.mark.parametrize("jump", JUMPS)
def test_sessions_that_started_while_the_clock_was_ahead_do_not_lock_a_guest_out(
    installation: Installation, jump: timedelta
) -> None:
    installation.clock.advance(jump)
    installation.add_card()
    installation.clock.advance(-jump)
    if jump > MINUTE:
        installation.add_card()
    with pytest.raises(CardLimitReached) as refused:
        installation.add_card()

    assert refused.value.retry_after_seconds <= timedelta(hours=24).total_seconds()


# Shows F40.
@pytest.mark.parametrize("jump", [2 * MINUTE, timedelta(days=365)])
def test_a_worker_with_a_heartbeat_in_the_future_counts_as_missing(
    installation: Installation, jump: timedelta
) -> None:
    installation.clock.advance(jump)
    now = installation.clock.now()
    is_missing = IsWorkerMissing(
        storage=installation.storage, clock=installation.clock, watching_since=now
    )
    installation.container.leave_heartbeat()(a_worker())
    installation.clock.advance(-jump)
    assert is_missing()

    installation.container.leave_heartbeat()(a_worker())
    assert not is_missing()
