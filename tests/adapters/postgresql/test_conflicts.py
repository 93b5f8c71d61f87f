"""Units that get in each other's way are done again; those that wait too long are given up."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from threading import Barrier

import pytest

from adapters.postgresql.connection import Conflict
from adapters.postgresql.storage import BACKOFF_SECONDS, PostgresqlStorage
from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import GUEST_ID, MERCHANT_ACCOUNT, NOW, TOKEN_ID, a_uuid
from domain.errors import ServiceUnavailable
from domain.identifiers import CardToken, TokenId
from domain.ports import WriteUnit
from tests.adapters.postgresql.by_hand import execute, statements_of
from tests.builders import (
    CENTER_ID,
    PROVIDER,
    a_discard,
    a_guest,
    a_payment_account,
    a_session,
    an_evidence,
)
from tests.concurrency import elsewhere

CONFLICTS = {"40001": "serialization failure", "40P01": "deadlock"}


def conflict(unit: WriteUnit, code: str = "40001") -> None:
    """Have the server say that others got in the way."""
    statements_of(unit).execute(f"DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '{code}'; END $$")


def has_session(storage: PostgresqlStorage) -> bool:
    with storage.read() as unit:
        return unit.sessions.get(TOKEN_ID) is not None


def test_of_two_in_a_deadlock_both_get_through(url: str, storage: PostgresqlStorage) -> None:
    execute(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET deadlock_timeout = '10ms'")
    both = [TokenId(a_uuid(number)) for number in (1, 2)]
    with storage.write() as unit:
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
                one_is_locked.wait(10)
            session = unit.sessions.get(second)
            assert session is not None
            unit.sessions.update(session.due_now(NOW))
            unit.commit()
            return second

        return storage.transact(work)

    assert at_once(2, lock_both) == both
    assert len(calls) >= 3


@pytest.mark.parametrize("code", CONFLICTS, ids=CONFLICTS.values())
def test_work_is_done_again_from_the_start_until_nobody_is_in_the_way(
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


@pytest.mark.parametrize("code", CONFLICTS, ids=CONFLICTS.values())
def test_work_that_never_gets_through_is_given_up(storage: PostgresqlStorage, code: str) -> None:
    calls: list[WriteUnit] = []

    def work(unit: WriteUnit) -> None:
        calls.append(unit)
        unit.sessions.add(a_session())
        conflict(unit, code)

    with pytest.raises(ServiceUnavailable) as refused:
        storage.transact(work)
    assert isinstance(refused.value.__cause__, Conflict)
    assert len(calls) == len(BACKOFF_SECONDS) + 1
    assert not has_session(storage)


def test_a_unit_that_cannot_be_done_again_is_given_up_at_once(storage: PostgresqlStorage) -> None:
    with pytest.raises(ServiceUnavailable), storage.write() as unit:
        conflict(unit)
    with pytest.raises(ServiceUnavailable), storage.read() as reading:
        # A standby says so when it has to forget what a reader still needs.
        statements_of(reading).execute(
            "DO $$ BEGIN RAISE EXCEPTION USING ERRCODE = '40001'; END $$"
        )


WAITING: dict[str, tuple[Callable[[WriteUnit], object], Callable[[WriteUnit], object]]] = {
    "a session": (
        lambda unit: unit.sessions.get(TOKEN_ID),
        lambda unit: unit.sessions.update(a_session().due_now(NOW)),
    ),
    "the page of a session": (
        lambda unit: unit.sessions.get(TOKEN_ID),
        lambda unit: unit.sessions.get(TOKEN_ID),
    ),
    "the accounts of a guest": (
        lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
        lambda unit: unit.accounts.active_at(GUEST_ID, CENTER_ID),
    ),
    "a token": (
        lambda unit: unit.accounts.is_held(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")),
        lambda unit: unit.discards.get(PROVIDER, MERCHANT_ACCOUNT, CardToken("token-1")),
    ),
    "an account": (
        lambda unit: unit.accounts.get(a_payment_account().account_id),
        lambda unit: unit.accounts.update(a_payment_account()),
    ),
    "evidence": (
        lambda unit: unit.evidence.add(TOKEN_ID, an_evidence()),
        lambda unit: unit.evidence.add(TOKEN_ID, an_evidence(content="other")),
    ),
    "an import": (
        lambda unit: unit.guests.put_many([]),
        lambda unit: unit.guests.put_many([a_guest()]),
    ),
}


@pytest.mark.parametrize(("first", "second"), WAITING.values(), ids=WAITING)
@pytest.mark.usefixtures("impatient")
def test_who_waits_for_another_too_long_is_given_up(
    url: str,
    first: Callable[[WriteUnit], object],
    second: Callable[[WriteUnit], object],
) -> None:
    calls: list[WriteUnit] = []

    def come_second(unit: WriteUnit) -> None:
        calls.append(unit)
        second(unit)
        unit.commit()

    def is_given_up() -> bool:
        with pytest.raises(ServiceUnavailable):
            storage.transact(come_second)
        return len(calls) == 1

    with closing(PostgresqlStorage(url)) as storage:
        with storage.write() as unit:
            unit.sessions.add(a_session())
            unit.accounts.add(a_payment_account())
            unit.discards.add(a_discard())
            unit.commit()
        with storage.write() as unit:
            first(unit)
            assert elsewhere(is_given_up)
        storage.transact(come_second)
