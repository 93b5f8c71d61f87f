"""Units with a conflict are repeated; a unit that waits too long for a lock is unavailable."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from threading import Barrier

import pytest

from adapters.postgresql.connection import Conflict
from adapters.postgresql.storage import BACKOFF_SECONDS, PostgresqlStorage
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, TOKEN_ID, a_uuid
from domain.errors import ServiceUnavailable
from domain.identifiers import CardToken, TokenId
from domain.personal_data.erasure import Erasure
from domain.storage import UnitOfWork, WriteUnit
from tests.adapters.postgresql.by_hand import set_default
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    PROVIDER,
    a_center,
    a_discard,
    a_guest,
    a_product,
    a_session,
    an_account,
    an_attempt,
    an_evidence,
)
from tests.concurrency import elsewhere
from tests.databases import transaction_of
from tests.waiting import LIMIT_SECONDS

SERIALIZATION_FAILURE = "40001"
CODES = {SERIALIZATION_FAILURE: "serialization failure", "40P01": "deadlock"}


def conflict(unit: UnitOfWork, code: str = SERIALIZATION_FAILURE) -> None:
    """Make the server report a conflict."""
    transaction_of(unit).execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")


def has_session(storage: PostgresqlStorage) -> bool:
    with storage.read() as unit:
        return unit.sessions.get(TOKEN_ID) is not None


# Shows F17.
def test_both_units_of_work_in_a_deadlock_eventually_succeed(
    own_url: str, own_storage: PostgresqlStorage
) -> None:
    set_default(own_url, "deadlock_timeout = '10ms'")
    both = [TokenId(a_uuid(number)) for number in (1, 2)]
    with own_storage.write() as unit:
        for token_id in both:
            unit.sessions.add(a_session(token_id=token_id))
        unit.commit()
    one_is_locked = Barrier(2)
    calls: list[int] = []

    def lock_both(number: int) -> TokenId:
        first, second = both if number else reversed(both)

        def work(unit: WriteUnit) -> TokenId:
            calls.append(number)
            assert unit.sessions.get(first) is not None
            if calls.count(number) == 1:
                one_is_locked.wait(LIMIT_SECONDS)
            session = unit.sessions.get(second)
            assert session is not None
            unit.sessions.update(session.due_now(NOW))
            unit.commit()
            return second

        return own_storage.transact(work)

    assert at_once(2, lock_both) == both
    assert len(calls) >= 3


# Shows F17.
@pytest.mark.parametrize("code", CODES, ids=CODES.values())
def test_work_is_repeated_in_a_new_unit_of_work_after_a_conflict(
    storage: PostgresqlStorage, code: str
) -> None:
    units: list[WriteUnit] = []

    def work(unit: WriteUnit) -> int:
        units.append(unit)
        unit.sessions.add(a_session())
        if len(units) <= len(BACKOFF_SECONDS):
            conflict(unit, code)
        unit.commit()
        return len(units)

    assert storage.transact(work) == len(BACKOFF_SECONDS) + 1
    assert len(set(map(id, units))) == len(units)
    assert has_session(storage)


# Shows F17.
def test_a_unit_of_work_that_conflicts_at_every_attempt_is_reported_as_unavailable(
    storage: PostgresqlStorage,
) -> None:
    calls: list[WriteUnit] = []

    def work(unit: WriteUnit) -> None:
        calls.append(unit)
        unit.sessions.add(a_session())
        conflict(unit)

    with pytest.raises(ServiceUnavailable) as refused:
        storage.transact(work)
    assert isinstance(refused.value.__cause__, Conflict)
    assert len(calls) == len(BACKOFF_SECONDS) + 1
    assert not has_session(storage)


def test_a_conflict_in_a_unit_of_work_that_cannot_be_repeated_fails_immediately(
    storage: PostgresqlStorage,
) -> None:
    with pytest.raises(ServiceUnavailable), storage.write() as unit:
        conflict(unit)
    # A standby reports it when replication removes rows that a reader still needs.
    with pytest.raises(ServiceUnavailable), storage.read() as reading:
        conflict(reading)


WAITING: dict[str, tuple[Callable[[WriteUnit], object], Callable[[WriteUnit], object]]] = {
    "a session": (
        lambda unit: unit.sessions.get(TOKEN_ID),
        lambda unit: unit.sessions.update(a_session().due_now(NOW)),
    ),
    # Without the wait, the page of a session that is being changed would stay open.
    "the open pages of a guest": (
        lambda unit: unit.sessions.get(TOKEN_ID),
        lambda unit: unit.sessions.make_pages_due(GUEST_ID, NOW),
    ),
    "the accounts of a guest": (
        lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
        lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
    ),
    "the accounts of a guest at another center": (
        lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
        lambda unit: unit.accounts.active_at(GUEST_ID, OTHER_CENTER_ID),
    ),
    # Before any row, or two webhooks and a removal would wait for each other.
    "the accounts that a webhook names": (
        lambda unit: unit.accounts.make_due(
            an_account().psp_account, NOW, token=an_account().token, guest_reference=None
        ),
        lambda unit: unit.accounts.active_at(GUEST_ID, OTHER_CENTER_ID),
    ),
    "a token": (
        lambda unit: unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")),
        lambda unit: unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")),
    ),
    "an account": (
        lambda unit: unit.accounts.get(an_account().account_id),
        lambda unit: unit.accounts.update(an_account()),
    ),
    # The first writes no row that the second writes, nor a position that it takes.
    "the products of a center": (
        lambda unit: unit.products.put_many([a_product(1, name="Sauna")]),
        lambda unit: unit.products.put_many([a_product(2)]),
    ),
    "evidence": (
        lambda unit: unit.evidence.add(TOKEN_ID, an_evidence(), at_most=50),
        lambda unit: unit.evidence.add(TOKEN_ID, an_evidence(content="other"), at_most=50),
    ),
    "a guest": (
        lambda unit: unit.guests.put_many([a_guest()]),
        lambda unit: unit.guests.add(a_guest()),
    ),
    # Without the wait, records that turn up late would not be erased.
    "an erasure": (
        lambda unit: unit.erasures.get(GUEST_ID),
        lambda unit: unit.erasures.reopen(GUEST_ID, NOW),
    ),
}


# Shows F12.
@pytest.mark.parametrize(("first", "second"), WAITING.values(), ids=WAITING)
@pytest.mark.usefixtures("short_lock_timeout")
def test_a_unit_of_work_fails_if_it_waits_too_long_for_a_lock(
    url: str, first: Callable[[WriteUnit], object], second: Callable[[WriteUnit], object]
) -> None:
    calls: list[WriteUnit] = []

    def wait(unit: WriteUnit) -> None:
        calls.append(unit)
        second(unit)
        unit.commit()

    with closing(PostgresqlStorage(url)) as storage:
        with storage.write() as unit:
            unit.sessions.add(a_session(attempt=an_attempt()))
            unit.accounts.add(an_account())
            unit.discards.add(a_discard())
            unit.centers.put_many([a_center()])
            unit.products.put_many([a_product(1)])
            unit.erasures.add(Erasure(guest_id=GUEST_ID, erased_at=NOW, due_at=NOW))
            unit.commit()
        with storage.write() as unit:
            first(unit)
            with pytest.raises(ServiceUnavailable):
                elsewhere(lambda: storage.transact(wait))
            assert len(calls) == 1
        storage.transact(wait)
