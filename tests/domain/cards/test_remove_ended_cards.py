"""A card is removed after its last agreement has ended."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from domain.cards import remove_ended_cards
from domain.cards.account import Account
from domain.events.event import EventType
from tests.builders import OTHER_CENTER_ID
from tests.databases import change_by_hand
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, PREPAID_CARD, Installation

DAY = timedelta(days=1)


def kept_for(
    installation: Installation, days: int, number: str = GOOD_CARD, **changes: object
) -> Account:
    """Store a card that is to be removed after some days."""
    account = installation.stored_card(number, **changes)
    account = replace(account, keep_until=installation.clock.now() + days * DAY)
    installation.put_account(account)
    return account


def remove(installation: Installation) -> bool:
    return installation.container.remove_ended_cards()()


def test_a_card_is_removed_after_the_time_that_the_page_showed(installation: Installation) -> None:
    installation.has_endpoint(types=[EventType.ACCOUNT_REMOVED])
    account = kept_for(installation, 7)
    installation.clock.advance(7 * DAY)
    assert not remove(installation)
    assert installation.accounts() == (account,)

    installation.clock.advance(timedelta(seconds=1))
    remove(installation)

    assert installation.accounts() == ()
    removed = installation.account(account.account_id)
    assert (removed.removed_at, removed.keep_until) == (installation.clock.now(), None)
    (told,) = installation.deliveries()
    assert (told.event.account_id, told.event.reason) == (account.account_id, "agreement_ended")
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()
    assert not remove(installation)


def test_removing_the_default_card_makes_the_newest_remaining_card_the_default(
    installation: Installation,
) -> None:
    goes = kept_for(installation, 1)
    stays = installation.stored_card(OTHER_GOOD_CARD)
    assert goes.is_default
    installation.clock.advance(2 * DAY)
    remove(installation)
    assert installation.accounts() == (replace(stays, is_default=True),)


def test_a_card_that_gets_an_agreement_during_its_removal_is_not_removed(
    installation: Installation,
) -> None:
    account = kept_for(installation, 1)
    installation.clock.advance(2 * DAY)
    longer = replace(account, keep_until=installation.clock.now() + DAY)
    installation.before_next_write(lambda: installation.put_account(longer))
    remove(installation)
    assert installation.accounts() == (longer,)


def test_a_card_is_removed_only_once_if_two_processes_remove_it(installation: Installation) -> None:
    installation.has_endpoint(types=[EventType.ACCOUNT_REMOVED])
    account = kept_for(installation, 1)
    installation.clock.advance(2 * DAY)
    installation.before_next_write(lambda: installation.remove_card(account))
    remove(installation)
    assert [each.event.reason for each in installation.deliveries()] == [None]


def test_each_run_removes_a_limited_number_of_cards_whose_agreements_have_ended(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remove_ended_cards, "MAX_PER_CALL", 2)
    for number in (GOOD_CARD, OTHER_GOOD_CARD, PREPAID_CARD):
        kept_for(installation, 1, number)
    installation.clock.advance(2 * DAY)
    assert remove(installation)
    assert len(installation.accounts()) == 1
    assert not remove(installation)
    assert installation.accounts() == ()


@pytest.mark.parametrize("is_due", [True, False])
def test_cards_that_cannot_be_decoded_do_not_delay_the_cards_of_other_guests(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, is_due: bool
) -> None:
    monkeypatch.setattr(remove_ended_cards, "MAX_PER_CALL", 1)
    installation.has_other_center()
    first = kept_for(installation, 1)
    second = installation.stored_card(OTHER_GOOD_CARD)
    damaged = first if is_due else second
    change_by_hand(
        installation.storage,
        f"UPDATE payment_accounts SET source = 77 WHERE account_id = '{damaged.account_id}'",
    )
    other = kept_for(installation, 2, center_id=OTHER_CENTER_ID)
    installation.clock.advance(3 * DAY)
    while remove(installation):
        pass
    assert installation.account(other.account_id).removed_at is not None
    change_by_hand(installation.storage, "UPDATE payment_accounts SET source = 1")
    assert installation.account(first.account_id).removed_at is None
