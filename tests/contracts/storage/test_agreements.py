"""Agreements, and the cards that they keep."""

from __future__ import annotations

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, a_uuid
from domain.identifiers import AccountId
from domain.pagination import PageRequest
from domain.storage import Storage
from tests.builders import an_account, an_agreement
from tests.contracts.storage.records import DAY, MICROSECOND, add, committed

FIRST, SECOND = AccountId(a_uuid(101)), AccountId(a_uuid(102))


def test_the_agreements_of_a_card_are_listed_oldest_first(storage: Storage) -> None:
    oldest = an_agreement(3, agreed_at=NOW - DAY)
    others = [an_agreement(1), an_agreement(2)]
    with committed(storage) as unit:
        add(unit, *others, oldest, an_agreement(4, account_id=SECOND))

    with storage.read() as unit:
        assert [*unit.agreements.of_account(FIRST)] == [oldest, *others]
        page = unit.agreements.page(FIRST, PageRequest(page=2, size=2))
        assert ([*page.items], page.total) == ([others[1]], 3)
        assert unit.agreements.page(AccountId(a_uuid(103)), PageRequest()).total == 0


def test_agreements_move_to_another_account_or_guest(storage: Storage) -> None:
    with committed(storage) as unit:
        add(unit, an_agreement(1), an_agreement(2, account_id=SECOND))
        unit.agreements.move(FIRST, SECOND)
    with storage.read() as unit:
        assert len(unit.agreements.of_account(SECOND)) == 2
        assert not unit.agreements.of_account(FIRST)

    with committed(storage) as unit:
        unit.agreements.give(GUEST_ID, OTHER_GUEST_ID)
    with storage.read() as unit:
        assert not unit.agreements.of_guest(GUEST_ID)
        assert len(unit.agreements.of_guest(OTHER_GUEST_ID)) == 2


def test_the_cards_that_have_to_go_are_found_in_order(storage: Storage) -> None:
    later = an_account(1, keep_until=NOW - MICROSECOND)
    first = an_account(2, keep_until=NOW - DAY)
    with committed(storage) as unit:
        add(
            unit,
            *(later, first, an_account(3), an_account(4, keep_until=NOW)),
            an_account(5, keep_until=NOW - DAY, removed_at=NOW),
        )
    with storage.read() as unit:
        assert [*unit.accounts.kept_until_before(NOW, at_most=9)] == [first, later]
        assert [*unit.accounts.kept_until_before(NOW, at_most=1)] == [first]


def test_agreements_are_forgotten_with_their_card(storage: Storage) -> None:
    with committed(storage) as unit:
        add(unit, an_account(1, removed_at=NOW), an_account(2))
        add(unit, an_agreement(1), an_agreement(2, account_id=SECOND))
    with committed(storage) as unit:
        assert unit.accounts.forget(before=NOW + DAY) == 1
    with storage.read() as unit:
        assert not unit.agreements.of_account(FIRST)
        assert len(unit.agreements.of_account(SECOND)) == 1
