"""Units wait for each other only if they lock the same records."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

import pytest

from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp_suite.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_uuid,
)
from domain.events.event import Event
from domain.events.event_list import EventFilter
from domain.identifiers import AccountId, CardToken, GuestReference, TokenId
from domain.pagination import PageRequest
from domain.retries import LEASE
from domain.storage import WriteUnit
from tests.adapters.postgresql.by_hand import is_waiting
from tests.builders import (
    CALLER,
    CENTER_ID,
    OTHER_CENTER_ID,
    PROVIDER,
    a_center,
    a_discard,
    a_guest,
    a_product,
    a_session,
    an_account,
    an_event_delivery,
    an_evidence,
)
from tests.concurrency import elsewhere
from tests.waiting import LIMIT_SECONDS, wait_until

OTHER_TOKEN_ID = TokenId(a_uuid(22))
TOKEN, OTHER_TOKEN = CardToken("token-1"), CardToken("token-2")
ACCOUNTS = [
    an_account(number, center_id=OTHER_CENTER_ID, expiry_notice_at=NOW) for number in (11, 12)
]


@pytest.fixture
def filled(storage: PostgresqlStorage) -> PostgresqlStorage:
    """Return a storage with two sessions, discards, keys and accounts."""
    with storage.write() as unit:
        unit.centers.put_many([a_center()])
        unit.products.put_many([a_product(1)])
        for token_id, token in ((TOKEN_ID, TOKEN), (OTHER_TOKEN_ID, OTHER_TOKEN)):
            unit.sessions.add(a_session(token_id=token_id, due_at=NOW))
            unit.discards.add(a_discard(token=token, due_at=NOW))
            unit.idempotency_keys.claim(CALLER, token, token_id, now=NOW, since=NOW)
        for account in ACCOUNTS:
            unit.accounts.add(account)
        unit.commit()
    return storage


def take_session(unit: WriteUnit) -> TokenId | None:
    taken = unit.sessions.take_due(NOW, until=NOW + LEASE)
    return taken.token_id if taken else None


def take_discard(unit: WriteUnit) -> CardToken | None:
    taken = unit.discards.take_due(NOW, until=NOW + LEASE)
    return taken.token if taken else None


def take_notice(unit: WriteUnit) -> AccountId | None:
    found = unit.accounts.with_expiry_notice_due(NOW, at_most=1, unreadable_until=NOW)
    account = next(iter(found), None)
    if account is None:
        return None
    unit.accounts.update(replace(account, expiry_notice_at=None))
    return account.account_id


def elsewhere_in(storage: PostgresqlStorage, work: Callable[[WriteUnit], object]) -> object:
    """Do some work in a unit of another thread without a commit. Return its result."""
    return elsewhere(lambda: storage.transact(work))


@pytest.mark.parametrize("take", [take_session, take_discard, take_notice])
def test_taking_a_job_skips_a_row_that_another_unit_of_work_has_locked(
    filled: PostgresqlStorage, take: Callable[[WriteUnit], object]
) -> None:
    with filled.write() as unit:
        first = take(unit)
        second = elsewhere_in(filled, take)
        assert {first, second} in (
            {TOKEN_ID, OTHER_TOKEN_ID},
            {TOKEN, OTHER_TOKEN},
            {account.account_id for account in ACCOUNTS},
        )
        assert take(unit) == second
        assert elsewhere_in(filled, take) is None


def test_a_job_that_another_unit_of_work_is_reading_is_not_taken(filled: PostgresqlStorage) -> None:
    with filled.write() as unit:
        unit.sessions.get(TOKEN_ID)
        unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, TOKEN)
        assert elsewhere_in(filled, take_session) == OTHER_TOKEN_ID
        assert elsewhere_in(filled, take_discard) == OTHER_TOKEN


def test_an_idempotency_key_that_is_being_claimed_is_not_deleted(
    filled: PostgresqlStorage,
) -> None:
    later = NOW.replace(year=2027)

    def forget(unit: WriteUnit) -> None:
        unit.idempotency_keys.forget(before=later)
        unit.commit()

    with filled.write() as unit:
        unit.idempotency_keys.claim(CALLER, TOKEN, OTHER_TOKEN_ID, now=later, since=NOW)
        elsewhere_in(filled, forget)
        unit.commit()
    with filled.read() as reading:
        get = reading.idempotency_keys.get
        since = NOW.replace(year=2025)
        assert get(CALLER, TOKEN, since=since) == OTHER_TOKEN_ID
        assert get(CALLER, OTHER_TOKEN, since=since) is None


def test_an_import_blocks_only_imports_into_the_same_table(filled: PostgresqlStorage) -> None:
    def others(unit: WriteUnit) -> int:
        unit.guests.put_many([a_guest(id=OTHER_GUEST_ID)])
        unit.sessions.add(a_session(token_id=TokenId(a_uuid(23))))
        unit.accounts.add(an_account())
        assert unit.centers.get(CENTER_ID) == a_center()
        return unit.products.page(CENTER_ID, PageRequest()).total

    with filled.write() as unit:
        unit.centers.put_many([a_center(name="Harbor Spa and Sauna")])
        unit.products.put_many([a_product(1, name="Sauna"), a_product(2)])
        assert elsewhere_in(filled, others) == 1


def test_imports_of_products_lock_centers_in_a_fixed_order(
    filled: PostgresqlStorage, url: str
) -> None:
    first, last = sorted((CENTER_ID, OTHER_CENTER_ID))

    def import_both() -> None:
        with filled.write() as unit:
            unit.products.put_many([a_product(3, center_id=last), a_product(4, center_id=first)])

    with ThreadPoolExecutor() as pool, filled.write() as unit:
        unit.centers.put_many([a_center(id=OTHER_CENTER_ID)])
        unit.products.put_many([a_product(2, center_id=first)])
        other = pool.submit(import_both)
        wait_until(lambda: is_waiting(url))
        # If the imports locked centers in another order, each would wait for the other here.
        unit.products.put_many([a_product(5, center_id=last)])
        unit.commit()
    other.result()


def test_units_of_work_about_different_records_do_not_wait_for_each_other(
    filled: PostgresqlStorage,
) -> None:
    def look(unit: WriteUnit, token_id: TokenId, token: CardToken, number: int) -> None:
        guest_id = (GUEST_ID, OTHER_GUEST_ID)[number]
        assert unit.sessions.get(token_id) is not None
        assert unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, token) is not None
        assert not unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, token)
        assert not unit.accounts.active_at(guest_id, CENTER_ID)
        unit.accounts.add(an_account(number, guest_id=guest_id))
        unit.evidence.add(token_id, an_evidence(), at_most=50)

    with filled.write() as unit:
        look(unit, TOKEN_ID, TOKEN, 0)
        elsewhere_in(filled, lambda unit: look(unit, OTHER_TOKEN_ID, OTHER_TOKEN, 1))


# Shows I5.
def test_looking_up_the_guest_of_a_psp_customer_waits_for_a_concurrent_assignment(
    filled: PostgresqlStorage, url: str
) -> None:
    account = an_account(3, guest_reference=GuestReference("shared"))

    def is_known(unit: WriteUnit) -> bool:
        return bool(unit.guest_references.guests(account.psp_account, account.guest_reference))

    with ThreadPoolExecutor() as pool:
        with filled.write() as unit:
            assert not is_known(unit)
            other = pool.submit(filled.transact, is_known)
            wait_until(lambda: other.done() or is_waiting(url))
            unit.accounts.add(account)
            unit.commit()
        assert other.result()


def test_only_one_unit_of_work_at_a_time_numbers_events(
    storage: PostgresqlStorage, url: str
) -> None:
    """An event keeps the number that another unit gives it, even if an earlier row appears."""
    early, late = an_event_delivery(1).event, an_event_delivery(2).event

    def store(event: Event) -> None:
        with storage.write() as unit:
            unit.events.add(event)
            unit.commit()

    def number() -> int:
        with storage.write() as unit:
            numbered = unit.events.number()
            unit.commit()
            return numbered

    with ThreadPoolExecutor() as pool:
        is_stored, may_commit = Barrier(2), Barrier(2)

        def store_slowly() -> None:
            with storage.write() as unit:
                unit.events.add(early)
                is_stored.wait(LIMIT_SECONDS)
                may_commit.wait(LIMIT_SECONDS)
                unit.commit()

        slow = pool.submit(store_slowly)
        is_stored.wait(LIMIT_SECONDS)
        pool.submit(store, late).result()
        with storage.write() as unit:
            assert unit.events.number() == 1
            may_commit.wait(LIMIT_SECONDS)
            slow.result()
            other = pool.submit(number)
            wait_until(lambda: is_waiting(url))
            unit.commit()
        assert other.result() == 1
    with storage.read() as reading:
        found = reading.events.between(0, 2, EventFilter(), limit=9)
    assert [(each.position.number, each.event) for each in found] == [(1, late), (2, early)]
