"""A guest's default card at each center: the first, the chosen one, and who comes after it."""

from __future__ import annotations

import pytest

from adapters.psp.contract.samples import GUEST_ID, OTHER_GUEST_ID, a_uuid
from domain.cards.account import Account
from domain.errors import PaymentAccountNotFound, UserNotAuthorized
from domain.permissions import MAY_ADD_CARDS, Caller, Permission
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_center, a_guest, an_account
from tests.installation import GOOD_CARD, MISMATCHING_CARD, OTHER_GOOD_CARD, Installation


def choose(installation: Installation, account: Account, caller: Caller | None = None) -> None:
    installation.use_cases.choose_default_card(
        caller or installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )


def remove(installation: Installation, account: Account) -> None:
    installation.use_cases.remove_account(
        installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )


def defaults(installation: Installation) -> list[str]:
    return [each.account_id for each in installation.accounts() if each.is_default]


def test_the_first_card_at_a_center_is_the_default_there(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID)

    first = installation.stored_card()
    further = installation.stored_card(OTHER_GOOD_CARD)
    elsewhere = installation.stored_card(center_id=OTHER_CENTER_ID)

    assert (first.is_default, further.is_default, elsewhere.is_default) == (True, False, True)


def test_a_card_is_the_default_after_all_others_were_removed(installation: Installation) -> None:
    remove(installation, installation.stored_card())
    assert installation.stored_card(OTHER_GOOD_CARD).is_default


@pytest.mark.parametrize("is_default", [True, False])
def test_renewing_a_card_keeps_the_default(installation: Installation, *, is_default: bool) -> None:
    cards = [installation.stored_card(), installation.stored_card(OTHER_GOOD_CARD)]
    session = installation.opened_session()
    number = GOOD_CARD if is_default else OTHER_GOOD_CARD
    installation.type_card(session, number, expiry=(9, 2035))
    installation.return_to_shop(session)

    assert installation.session(session.token_id).account_id == cards[not is_default].account_id
    assert defaults(installation) == [cards[0].account_id]


def test_the_chosen_card_is_the_default_in_place_of_the_one_before(
    installation: Installation,
) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID)
    installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    elsewhere = installation.stored_card(center_id=OTHER_CENTER_ID)

    for _ in range(2):
        choose(installation, second)
        assert defaults(installation) == [second.account_id, elsewhere.account_id]


# Shows I9.
def test_the_newest_card_left_is_the_next_default(installation: Installation) -> None:
    installation.has_center(a_center(id=OTHER_CENTER_ID))
    installation.configure(OTHER_CENTER_ID)
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    third = installation.stored_card(MISMATCHING_CARD)
    elsewhere = installation.stored_card(center_id=OTHER_CENTER_ID)

    for removed, default in ((first, third), (third, second)):
        remove(installation, removed)
        assert defaults(installation) == [default.account_id, elsewhere.account_id]
        assert not installation.account(removed.account_id).is_default
    remove(installation, second)
    assert defaults(installation) == [elsewhere.account_id]


def test_removing_another_card_keeps_the_default(installation: Installation) -> None:
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    installation.stored_card(MISMATCHING_CARD)

    remove(installation, second)

    assert defaults(installation) == [first.account_id]


@pytest.fixture
def by_older_release(installation: Installation) -> list[Account]:
    """Cards of an older release, which may still run beside this one and knows no default."""
    accounts = [an_account(number) for number in (1, 2, 3)]
    with installation.storage.write() as unit:
        for account in accounts:
            unit.accounts.add(account)
        unit.commit()
    return accounts


@pytest.mark.usefixtures("by_older_release")
def test_a_card_stored_beside_cards_without_a_default_is_the_default(
    installation: Installation,
) -> None:
    stored = installation.stored_card()
    assert defaults(installation) == [stored.account_id]


def test_cards_without_a_default_get_one(
    installation: Installation, by_older_release: list[Account]
) -> None:
    remove(installation, by_older_release[0])
    assert defaults(installation) == [by_older_release[2].account_id]
    choose(installation, by_older_release[1])
    assert defaults(installation) == [by_older_release[1].account_id]


def test_a_card_that_is_removed_meanwhile_is_not_chosen(installation: Installation) -> None:
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    installation.before_next_write(lambda: remove(installation, second))

    with pytest.raises(PaymentAccountNotFound):
        choose(installation, second)
    assert defaults(installation) == [first.account_id]


def test_a_card_of_others_cannot_be_chosen(installation: Installation) -> None:
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    removed = installation.stored_card(MISMATCHING_CARD)
    remove(installation, removed)
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))

    for caller, guest_id, account_id in (
        (installation.a_caller(centers=frozenset()), GUEST_ID, second.account_id),
        (installation.caller, OTHER_GUEST_ID, second.account_id),
        (installation.caller, GUEST_ID, removed.account_id),
        (installation.caller, GUEST_ID, a_uuid(9)),
        (installation.caller, GUEST_ID, "x"),
    ):
        with pytest.raises(PaymentAccountNotFound):
            installation.use_cases.choose_default_card(
                caller, guest_id=guest_id, account_id=account_id
            )
    assert defaults(installation) == [first.account_id]


@pytest.mark.parametrize("permission", list(Permission))
def test_add_or_edit_permission_chooses(installation: Installation, permission: Permission) -> None:
    first = installation.stored_card()
    second = installation.stored_card(OTHER_GOOD_CARD)
    caller = installation.a_caller(permission, centers=frozenset({CENTER_ID}))
    if permission in MAY_ADD_CARDS.any_of:
        choose(installation, second, caller)
        assert defaults(installation) == [second.account_id]
    else:
        with pytest.raises(UserNotAuthorized):
            choose(installation, second, caller)
        assert defaults(installation) == [first.account_id]
