from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.psp_suite.clock import START
from domain.cards.account import Account
from domain.cards.discard import Discard, UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.psps.payment_provider import UNKNOWN_FOR
from domain.retries import is_alarming, next_retry
from tests.databases import committed
from tests.installation import Installation, Trouble

SECOND = timedelta(seconds=1)


def note(installation: Installation, account: Account) -> Discard | None:
    """Schedule a discard of the account's token, and return the stored discard."""
    before = noted(installation, account)
    with committed(installation.storage) as unit:
        is_new = note_discard(unit, UnkeptToken.of(account), now=installation.clock.now())
    after = noted(installation, account)
    assert is_new is (before is None and after is not None)
    return after


def noted(installation: Installation, account: Account) -> Discard | None:
    """Return the stored discard of the account's token."""
    with installation.storage.read() as unit:
        return unit.discards.get(account.provider, account.merchant_account, account.token)


@pytest.fixture
def removed(installation: Installation) -> Account:
    return installation.removed_card()


def test_a_discard_is_not_scheduled_for_the_token_of_an_active_account(
    installation: Installation,
) -> None:
    account = installation.stored_card()

    assert note(installation, account) is None


def test_scheduling_a_discard_again_does_not_change_a_discard_in_progress(
    installation: Installation, removed: Account
) -> None:
    taken = installation.container.discard_token().take()
    assert taken is not None

    assert note(installation, removed) == taken


@pytest.mark.parametrize(
    ("typed_after", "may_be_kept"), [(SECOND, True), (timedelta(0), False), (-SECOND, False)]
)
def test_a_token_that_the_psp_still_reports_after_its_discard_is_discarded_a_second_time(
    installation: Installation, removed: Account, typed_after: timedelta, may_be_kept: bool
) -> None:
    done_at = installation.clock.now()
    installation.reconcile()
    installation.clock.advance(timedelta(minutes=1))

    again = note(installation, replace(removed, consented_at=done_at + typed_after))

    assert again is not None
    assert (again.done_at, again.due_at) == (None, installation.clock.now())
    assert (again.begun_at is None) == may_be_kept


def test_a_successful_discard_clears_the_start_time_of_the_psp_outage(
    installation: Installation, removed: Account
) -> None:
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.reconcile()
    installation.provider.recover()
    installation.clock.advance(timedelta(hours=1))
    installation.reconcile()

    done = noted(installation, removed)
    assert done is not None
    assert (done.unanswered_since, done.done_at) == (None, installation.clock.now())


# Shows F47.
def test_a_discard_is_retried_if_the_psp_does_not_find_the_token_the_first_time(
    installation: Installation, removed: Account
) -> None:
    installation.provider.have(Trouble.NOT_FOUND, "discard")
    installation.reconcile()
    installation.provider.recover()
    assert installation.tokens_at_psp() == {removed.token}
    installation.clock.advance(UNKNOWN_FOR)
    installation.reconcile()

    assert installation.tokens_at_psp() == frozenset()


def test_a_discard_is_complete_when_the_psp_has_failed_to_find_the_token_twice(
    installation: Installation, removed: Account
) -> None:
    installation.provider.have(Trouble.NOT_FOUND, "discard")
    installation.reconcile()
    first = noted(installation, removed)
    assert first is not None
    assert (first.done_at, first.unanswered_since) == (None, None)
    installation.clock.advance(UNKNOWN_FOR - SECOND)
    installation.reconcile()
    assert noted(installation, removed) == first

    installation.clock.advance(SECOND)
    installation.reconcile()

    gone = noted(installation, removed)
    assert gone is not None
    assert (gone.done_at, gone.due_at) == (installation.clock.now(), None)


def test_a_process_that_lost_its_lease_does_not_overwrite_the_result_of_the_new_owner(
    installation: Installation, removed: Account
) -> None:
    """The process is paused during its call until its lease has ended."""
    discard_token = installation.container.discard_token()
    mine = discard_token.take()
    assert mine is not None
    theirs: list[Discard | None] = []

    def take_over() -> None:
        installation.clock.advance(timedelta(minutes=2))
        theirs.append(discard_token.take())

    installation.provider.meanwhile["discard"] = take_over
    discard_token(mine)

    assert theirs == [noted(installation, removed)]


@pytest.mark.parametrize(
    ("silence", "wait"),
    [
        (timedelta(0), timedelta(seconds=30)),
        (timedelta(seconds=-90), timedelta(seconds=30)),
        (timedelta(minutes=7), timedelta(minutes=7)),
        (timedelta(days=9), timedelta(hours=1)),
    ],
)
def test_the_wait_between_calls_to_an_unavailable_psp_doubles_up_to_an_hour(
    silence: timedelta, wait: timedelta
) -> None:
    assert next_retry(START, START + silence) == START + silence + wait


def test_a_psp_outage_raises_an_alarm_after_24_hours() -> None:
    day = timedelta(hours=24)

    assert not is_alarming(None, START)
    assert not is_alarming(START, START + day - SECOND)
    assert is_alarming(START, START + day)
