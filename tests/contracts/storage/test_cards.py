from __future__ import annotations

from dataclasses import replace
from datetime import date
from functools import partial
from typing import Any

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, OTHER_GUEST_ID, a_uuid
from domain.cards.account import AccountFilter
from domain.identifiers import (
    AccountId,
    CardToken,
    CenterId,
    GuestId,
    MerchantAccount,
    ProviderName,
)
from domain.pagination import PageRequest
from domain.storage import AlreadyStored, Storage, WriteUnit
from tests.builders import CENTER_ID, OTHER_CENTER_ID, PROVIDER, an_account, an_agreement
from tests.contracts.storage.records import DAY, MICROSECOND, store
from tests.databases import committed


def accounts_of(
    storage: Storage, centers: frozenset[CenterId] | None = None, *, page: int = 1, size: int = 100
) -> tuple[list[AccountId], int]:
    with storage.read() as unit:
        found = unit.accounts.page(GUEST_ID, centers, PageRequest(page=page, size=size))
    return [account.account_id for account in found.items], found.total


# Shows I2.
def test_storing_the_same_card_twice_is_refused(storage: Storage) -> None:
    with committed(storage) as unit:
        unit.accounts.add(an_account(1))
        with pytest.raises(AlreadyStored):
            unit.accounts.add(an_account(2, fingerprint="fingerprint-1"))
        unit.accounts.add(an_account(3))
    assert accounts_of(storage) == ([a_uuid(101), a_uuid(103)], 2)


# Shows I2.
def test_a_session_cannot_store_a_second_account_even_if_the_first_was_removed(
    storage: Storage,
) -> None:
    with storage.write() as unit:
        first = an_account(1, removed_at=NOW)
        unit.accounts.add(first)
        with pytest.raises(AlreadyStored):
            unit.accounts.add(an_account(2, token_id=first.token_id))


def test_a_card_that_differs_in_one_field_is_stored_separately(storage: Storage) -> None:
    differences: list[dict[str, Any]] = [  # fields of an account
        {"guest_id": OTHER_GUEST_ID},
        {"center_id": OTHER_CENTER_ID},
        {"provider": ProviderName("other")},
        {"merchant_account": MerchantAccount("other")},
        {"fingerprint": "other"},
        {"removed_at": NOW},
    ]
    others = [
        an_account(number, **({"fingerprint": "fingerprint-1"} | difference))
        for number, difference in enumerate(differences, 2)
    ]
    store(storage, an_account(1), *others)
    with storage.read() as unit:
        assert [unit.accounts.get(each.account_id) for each in others] == others


# Shows I9.
def test_a_guest_has_one_default_card_at_each_center(storage: Storage) -> None:
    with committed(storage) as unit:
        unit.accounts.add(an_account(1, is_default=True))
        unit.accounts.add(an_account(2))
        unit.accounts.add(an_account(3, is_default=True, guest_id=OTHER_GUEST_ID))
        unit.accounts.add(an_account(4, is_default=True, center_id=OTHER_CENTER_ID))
        unit.accounts.add(an_account(5, is_default=True, removed_at=NOW))
        with pytest.raises(AlreadyStored):
            unit.accounts.add(an_account(9, is_default=True))
    with pytest.raises(Exception, match="payment_accounts"), storage.write() as unit:
        unit.accounts.update(an_account(2, is_default=True))
    with committed(storage) as unit:
        unit.accounts.update(an_account(1))
        unit.accounts.update(an_account(2, is_default=True))
    with storage.read() as reading:
        active = reading.accounts.active_at(GUEST_ID, CENTER_ID)
    assert list(active) == [an_account(1), an_account(2, is_default=True)]


# Shows I2, F36.
def test_adding_a_card_concurrently_stores_one_account(storage: Storage) -> None:
    def add(number: int) -> bool:
        try:
            store(storage, an_account(number, fingerprint="the same"))
        except AlreadyStored:
            return False
        return True

    assert at_once(4, add).count(True) == 1
    assert accounts_of(storage)[1] == 1


def test_active_accounts_are_listed_in_the_order_of_creation(storage: Storage) -> None:
    with committed(storage) as unit:
        for account in (
            *map(an_account, [5, 3]),
            an_account(9, removed_at=NOW),
            an_account(8, guest_id=OTHER_GUEST_ID),
            an_account(7, center_id=OTHER_CENTER_ID),
            an_account(4),
        ):
            unit.accounts.add(account)
    assert accounts_of(storage, size=2) == ([a_uuid(105), a_uuid(103)], 4)
    assert accounts_of(storage, page=2, size=2) == ([a_uuid(107), a_uuid(104)], 4)
    assert accounts_of(storage, page=10**4000) == ([], 4)
    with storage.read() as unit:
        active = unit.accounts.active_at(GUEST_ID, CENTER_ID)
    assert list(active) == [an_account(number) for number in (5, 3, 4)]


def test_accounts_are_listed_in_order_of_their_expiry_date(storage: Storage) -> None:
    def expiring(month: int, year: int, *, page: int = 1) -> tuple[list[AccountId], int]:
        request = PageRequest(page=page, size=2)
        with storage.read() as unit:
            found = unit.accounts.page_expiring(
                CENTER_ID, before=date(year, month, 28), request=request
            )
        return [account.account_id for account in found.items], found.total

    with committed(storage) as unit:
        for account in (
            an_account(5, expiry_month=1, expiry_year=2028),
            an_account(9, expiry_month=12, expiry_year=2026),
            an_account(2, expiry_month=12, expiry_year=2026, guest_id=OTHER_GUEST_ID),
            an_account(1, expiry_month=11, expiry_year=2026),
            an_account(3, expiry_month=1, expiry_year=2026, removed_at=NOW),
            an_account(4, expiry_month=1, expiry_year=2026, center_id=OTHER_CENTER_ID),
        ):
            unit.accounts.add(account)
    assert expiring(11, 2026) == ([], 0)
    assert expiring(12, 2026) == ([a_uuid(101)], 1)
    assert expiring(1, 2028) == ([a_uuid(101), a_uuid(109)], 3)
    assert expiring(1, 2028, page=2) == ([a_uuid(102)], 3)
    assert expiring(2, 2028, page=2) == ([a_uuid(102), a_uuid(105)], 4)
    assert expiring(12, 9999, page=3) == ([], 4)


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (AccountFilter(), [6, 4, 2, 9, 5]),
        (AccountFilter(only_active=True), [6, 4, 2, 9]),
        (AccountFilter(guest_id=OTHER_GUEST_ID), [2]),
        (AccountFilter(center_id=OTHER_CENTER_ID), [4]),
        (AccountFilter(merchant_account=MerchantAccount("other")), [6]),
        (AccountFilter(added_since=NOW), [6, 4]),
        (AccountFilter(expires_before=date(2027, 1, 31)), [9, 2]),
        (AccountFilter(expires_from=date(2027, 1, 31)), [5, 4, 6]),
        (AccountFilter(expires_from=date(2027, 1, 1), expires_before=date(2031, 3, 1)), [5]),
        (AccountFilter(guest_id=GUEST_ID, center_id=CENTER_ID, only_active=True), [6, 9]),
        (AccountFilter(agreement_ends_before=NOW), [9]),
    ],
)
def test_a_search_for_accounts_sorts_the_results_by_creation_or_expiry(
    storage: Storage, wanted: AccountFilter, numbers: list[int]
) -> None:
    before = {"created_at": NOW - MICROSECOND}
    with committed(storage) as unit:
        for account in (
            an_account(5, expiry_month=1, expiry_year=2027, removed_at=NOW, **before),
            an_account(9, expiry_month=11, expiry_year=2026, **before),
            an_account(2, expiry_month=12, expiry_year=2026, guest_id=OTHER_GUEST_ID, **before),
            an_account(4, center_id=OTHER_CENTER_ID),
            an_account(6, merchant_account=MerchantAccount("other")),
        ):
            unit.accounts.add(account)
        for number, due_at in ((9, NOW - DAY), (2, NOW), (4, None)):
            account_id = AccountId(a_uuid(100 + number))
            unit.agreements.add(an_agreement(number, account_id=account_id, due_at=due_at))
    with storage.read() as unit:
        found, first = (unit.accounts.search(wanted, limit=limit) for limit in (9, 1))
    assert [each.account_id for each in found] == [a_uuid(100 + number) for number in numbers]
    assert list(first) == list(found[:1])


# Shows S2.
def test_a_list_of_accounts_does_not_show_or_count_accounts_of_other_centers(
    storage: Storage,
) -> None:
    store(storage, an_account(1), an_account(2, center_id=OTHER_CENTER_ID))
    both = frozenset({CENTER_ID, OTHER_CENTER_ID})
    assert accounts_of(storage, frozenset({CENTER_ID})) == ([a_uuid(101)], 1)
    assert accounts_of(storage, both) == ([a_uuid(101), a_uuid(102)], 2)
    assert accounts_of(storage, frozenset()) == ([], 0)
    # There are more ids than a statement may have parameters.
    many = frozenset(CenterId(a_uuid(number)) for number in range(2, 70_000))
    assert accounts_of(storage, many) == ([a_uuid(102)], 1)


def test_each_expiry_notice_is_taken_by_only_one_of_several_processes(storage: Storage) -> None:
    numbers = range(40)
    store(storage, *(an_account(number, expiry_notice_at=NOW) for number in numbers))

    def tell_all(_: int) -> list[AccountId]:
        told: list[AccountId] = []
        for _ in numbers:
            with committed(storage) as unit:
                for account in unit.accounts.with_expiry_notice_due(
                    NOW, at_most=3, unreadable_until=NOW + DAY
                ):
                    assert account is not None
                    unit.accounts.update(replace(account, expiry_notice_at=None))
                    told.append(account.account_id)
        return told

    with storage.read() as unit:
        assert unit.accounts.is_expiry_notice_due(NOW)
        assert not unit.accounts.is_expiry_notice_due(NOW - DAY)
    told = [account_id for teller in at_once(4, tell_all) for account_id in teller]
    assert sorted(told) == sorted(an_account(number).account_id for number in numbers)


def test_a_guest_limited_to_one_card_gets_one_card_from_concurrent_additions(
    storage: Storage,
) -> None:
    def add_only_card(taker: int) -> list[bool]:
        def add(unit: WriteUnit, guest_id: GuestId, number: int) -> bool:
            if unit.accounts.active_at(guest_id, CENTER_ID):
                return False
            unit.accounts.add(an_account(number, guest_id=guest_id))
            unit.commit()
            return True

        return [
            storage.transact(
                partial(add, guest_id=GuestId(a_uuid(2_000 + guest)), number=100 * guest + taker)
            )
            for guest in range(5)
        ]

    added = at_once(4, add_only_card)
    assert [sum(of_guest) for of_guest in zip(*added, strict=True)] == [1] * 5


def test_adding_accounts_concurrently_does_not_reorder_accounts_already_listed(
    storage: Storage,
) -> None:
    adding = set(range(1, 7))

    def add(unit: WriteUnit, number: int) -> None:
        center_id = (CENTER_ID, OTHER_CENTER_ID)[number % 2]
        unit.accounts.active_at(GUEST_ID, center_id)
        unit.accounts.add(an_account(number, center_id=center_id))
        unit.commit()

    def add_or_list(number: int) -> None:
        seen: list[AccountId] = []
        while number == 0 and adding:
            listed, _ = accounts_of(storage)
            assert listed[: len(seen)] == seen
            seen = listed
        try:
            for again in range(8 if number else 0):
                storage.transact(partial(add, number=number * 10 + again))
        finally:
            adding.discard(number)

    at_once(7, add_or_list)
    assert accounts_of(storage)[1] == 6 * 8


def test_a_card_token_counts_as_used_while_its_account_is_active(storage: Storage) -> None:
    store(storage, an_account(1), an_account(2, removed_at=NOW))
    with storage.read() as unit:
        held = unit.accounts.is_held
        assert held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1"))
        assert not held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-2"))
        assert not held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-3"))
        assert not held(PROVIDER, MerchantAccount("other"), CardToken("token-1"))
        assert not held(ProviderName("other"), MERCHANT_ACCOUNT, CardToken("token-1"))
