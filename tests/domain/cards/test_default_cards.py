"""Which card is a guest's default at a center: the first, the chosen or the next card."""

from __future__ import annotations

import pytest

from adapters.psp_suite.samples import GUEST_ID
from domain.cards.account import Account
from domain.errors import PaymentAccountNotFound
from tests.builders import OTHER_CENTER_ID, an_account
from tests.installation import GOOD_CARD, MISMATCHING_CARD, OTHER_GOOD_CARD, Installation


def choose(installation: Installation, account: Account) -> None:
    installation.use_cases.choose_default_card(
        installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )


def defaults(installation: Installation) -> list[str]:
    return [each.account_id for each in installation.accounts() if each.is_default]


def test_the_first_card_of_a_guest_at_a_center_is_the_default(installation: Installation) -> None:
    installation.has_other_center()

    first = installation.stored_card()
    further = installation.stored_card(OTHER_GOOD_CARD)
    elsewhere = installation.stored_card(center_id=OTHER_CENTER_ID)

    assert (first.is_default, further.is_default, elsewhere.is_default) == (True, False, True)


@pytest.mark.parametrize("is_default", [True, False])
def test_renewing_a_card_does_not_change_which_card_is_the_default(
    installation: Installation, *, is_default: bool
) -> None:
    cards = [installation.stored_card(), installation.stored_card(OTHER_GOOD_CARD)]
    number = GOOD_CARD if is_default else OTHER_GOOD_CARD
    renewed = installation.stored_card(number, expiry=(9, 2035))

    assert renewed.account_id == cards[not is_default].account_id
    assert defaults(installation) == [cards[0].account_id]


def test_choosing_a_default_card_replaces_the_previous_default(installation: Installation) -> None:
    installation.has_other_center()
    installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    elsewhere = installation.stored_card(center_id=OTHER_CENTER_ID)

    for _ in range(2):
        choose(installation, second)
        assert defaults(installation) == [second.account_id, elsewhere.account_id]


# Shows I9.
def test_the_newest_card_becomes_the_default_after_a_removal(installation: Installation) -> None:
    installation.has_other_center()
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    third = installation.stored_card(MISMATCHING_CARD)
    elsewhere = installation.stored_card(center_id=OTHER_CENTER_ID)

    for removed, default in ((second, first), (first, third)):
        installation.remove_card(removed)
        assert defaults(installation) == [default.account_id, elsewhere.account_id]
        assert not installation.account(removed.account_id).is_default
    installation.remove_card(third)
    assert defaults(installation) == [elsewhere.account_id]


@pytest.fixture
def by_older_release(installation: Installation) -> list[Account]:
    """Cards stored by an older release, which has no default cards and may still be running."""
    accounts = [an_account(number) for number in (1, 2, 3)]
    installation.add_accounts(*accounts)
    return accounts


def test_removing_a_card_or_choosing_a_default_repairs_a_missing_default(
    installation: Installation, by_older_release: list[Account]
) -> None:
    installation.remove_card(by_older_release[0])
    assert defaults(installation) == [by_older_release[2].account_id]
    choose(installation, by_older_release[1])
    assert defaults(installation) == [by_older_release[1].account_id]


def test_choosing_a_default_card_is_refused_if_the_card_is_removed_meanwhile(
    installation: Installation,
) -> None:
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    installation.before_next_write(lambda: installation.remove_card(second))

    with pytest.raises(PaymentAccountNotFound):
        choose(installation, second)
    assert defaults(installation) == [first.account_id]
