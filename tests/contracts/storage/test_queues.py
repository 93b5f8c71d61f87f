"""Queues of due sessions, cards, discards and deliveries. Each job is taken by one worker."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import MERCHANT_ACCOUNT, NOW, TOKEN_ID, a_uuid
from domain.cards.account import READ_EVERY, READINGS_PER_MINUTE
from domain.events.event import LONGEST_WAIT
from domain.identifiers import (
    AccountId,
    CardToken,
    EventId,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.retries import MAX_BACKOFF, Waiting, latest_due
from domain.storage import AlreadyStored, Storage, WriteUnit
from tests.builders import (
    PROVIDER,
    a_configuration,
    a_discard,
    a_session,
    an_account,
    an_event_delivery,
    an_event_endpoint,
)
from tests.contracts.storage.records import DAY, MICROSECOND, MINUTE
from tests.databases import committed


@dataclass(frozen=True)
class DueRecords:
    """Records with a due time, each identified by a UUID."""

    add: Callable[[WriteUnit, str, datetime | None], None]
    take: Callable[[WriteUnit, datetime, datetime], str | None]
    count: Callable[[WriteUnit, datetime], Waiting]


def take_session(unit: WriteUnit, now: datetime, until: datetime) -> str | None:
    taken = unit.sessions.take_due(now, until=until)
    return taken.token_id if taken else None


def take_discard(unit: WriteUnit, now: datetime, until: datetime) -> str | None:
    taken = unit.discards.take_due(now, until=until)
    assert taken is None or taken.due_at == until
    return taken.token if taken else None


def take_account(unit: WriteUnit, now: datetime, until: datetime) -> str | None:
    taken = unit.accounts.take_due(now, until=until)
    assert taken is None or (taken.due_at, taken.asked_at) == (until, now)
    return taken.account_id if taken else None


def add_delivery(unit: WriteUnit, event_id: str, due_at: datetime | None) -> None:
    with suppress(AlreadyStored):
        unit.event_endpoints.add(an_event_endpoint())
    event = replace(an_event_delivery().event, event_id=EventId(event_id))
    unit.event_deliveries.add(an_event_delivery(event=event, due_at=due_at))


def take_delivery(unit: WriteUnit, now: datetime, until: datetime) -> str | None:
    taken = unit.event_deliveries.take_due(now, until=until)
    assert taken is None or taken.due_at == until
    return taken.event_id if taken else None


DUE: Final = [
    DueRecords(
        lambda unit, each, at: unit.sessions.add(a_session(token_id=TokenId(each), due_at=at)),
        take_session,
        lambda unit, now: unit.sessions.count_due(now),
    ),
    DueRecords(
        lambda unit, each, at: unit.discards.add(a_discard(token=CardToken(each), due_at=at)),
        take_discard,
        lambda unit, now: unit.discards.count_due(now),
    ),
    DueRecords(
        lambda unit, each, at: unit.accounts.add(
            an_account(int(each[-12:]), account_id=AccountId(each), fingerprint=each, due_at=at)
        ),
        take_account,
        lambda unit, now: unit.accounts.count_due(now),
    ),
    DueRecords(add_delivery, take_delivery, lambda unit, now: unit.event_deliveries.count_due(now)),
]


each_queue = pytest.mark.parametrize("due", DUE, ids=["sessions", "discards", "cards", "events"])


@each_queue
def test_due_jobs_are_taken_in_order_of_their_due_times(storage: Storage, due: DueRecords) -> None:
    waits = {2: timedelta(0), 0: -MINUTE, 1: -MICROSECOND, 3: MICROSECOND}
    with storage.write() as unit:
        for number, wait in waits.items():
            due.add(unit, a_uuid(number), NOW + wait)
        due.add(unit, a_uuid(4), None)
        taken = [due.take(unit, NOW, NOW + MINUTE) for _ in range(4)]
    assert taken == [a_uuid(0), a_uuid(1), a_uuid(2), None]


@each_queue
def test_due_jobs_are_counted(storage: Storage, due: DueRecords) -> None:
    with storage.write() as unit:
        assert due.count(unit, NOW) == Waiting()
        for number, wait in enumerate((timedelta(0), -MINUTE, MICROSECOND)):
            due.add(unit, a_uuid(number), NOW + wait)
        due.add(unit, a_uuid(3), None)
        assert due.count(unit, NOW) == Waiting(2, NOW - MINUTE)
        due.take(unit, NOW, NOW + MINUTE)
        assert due.count(unit, NOW) == Waiting(1, NOW)


@each_queue
def test_a_job_that_was_taken_is_due_again_at_its_new_time(
    storage: Storage, due: DueRecords
) -> None:
    until = NOW + MINUTE
    with committed(storage) as unit:
        due.add(unit, TOKEN_ID, NOW)
        assert due.take(unit, NOW, until) == TOKEN_ID
    with storage.write() as unit:
        assert due.take(unit, until - MICROSECOND, until) is None
        assert due.take(unit, until, until + DAY) == TOKEN_ID


# Shows F6.
@each_queue
def test_taking_a_job_without_a_commit_has_no_effect(storage: Storage, due: DueRecords) -> None:
    with committed(storage) as unit:
        due.add(unit, TOKEN_ID, NOW)
    for _ in range(2):
        with storage.write() as unit:
            assert due.take(unit, NOW, NOW + MINUTE) == TOKEN_ID


# Shows F14.
@each_queue
def test_concurrent_workers_take_each_due_job_once(storage: Storage, due: DueRecords) -> None:
    each = [a_uuid(number) for number in range(300, 312)]
    with committed(storage) as unit:
        for number in each:
            due.add(unit, number, NOW)

    def take_all(_: int) -> list[str]:
        taken: list[str] = []
        for _ in range(len(each) + 1):
            with committed(storage) as unit:
                found = due.take(unit, NOW, NOW + MINUTE)
            taken += [found] if found else []
        return taken

    assert sorted(found for taker in at_once(4, take_all) for found in taker) == each


def test_a_worker_does_not_take_jobs_for_excluded_merchant_accounts(storage: Storage) -> None:
    accounts = [
        PspAccount(ProviderName(provider), MerchantAccount(account))
        for provider in ("fake", "stripe")
        for account in ("main", "other")
    ]
    with committed(storage) as unit:
        for number, (provider, merchant_account) in enumerate(accounts):
            at = {"provider": provider, "merchant_account": merchant_account}
            configuration = a_configuration(**at)
            unit.sessions.add(
                a_session(token_id=TokenId(a_uuid(number)), configuration=configuration, due_at=NOW)
            )
            unit.discards.add(a_discard(**at, due_at=NOW))
    busy = {accounts[0], accounts[3]}

    with storage.write() as unit:
        for repository in (unit.sessions, unit.discards):
            assert not repository.is_any_due(NOW - MINUTE)
            assert repository.is_any_due(NOW, except_at=busy)
            taken = [repository.take_due(NOW, until=NOW + MINUTE, except_at=busy) for _ in range(3)]
            assert {each.psp_account for each in taken if each} == set(accounts) - busy
            assert repository.is_any_due(NOW)
            assert not repository.is_any_due(NOW, except_at=busy)


# Shows F40.
@pytest.mark.parametrize(
    ("due", "waits_at_most"),
    [(DUE[1], MAX_BACKOFF), (DUE[2], READ_EVERY[1]), (DUE[3], LONGEST_WAIT)],
    ids=["discards", "cards", "events"],
)
def test_a_job_is_not_delayed_if_a_wrong_clock_set_its_due_time_too_late(
    storage: Storage, due: DueRecords, waits_at_most: timedelta
) -> None:
    latest = latest_due(NOW, longest_wait=waits_at_most)
    with storage.write() as unit:
        due.add(unit, a_uuid(1), latest)
        assert due.take(unit, NOW, NOW + MINUTE) is None
        due.add(unit, a_uuid(2), latest + 365 * DAY)
        assert due.count(unit, NOW) == Waiting(1, None)
        due.add(unit, a_uuid(3), NOW)
        assert due.count(unit, NOW) == Waiting(2, NOW)
        taken = [due.take(unit, NOW, NOW + MINUTE) for _ in range(3)]
    assert taken == [a_uuid(3), a_uuid(2), None]


def test_jobs_that_the_psp_did_not_answer_are_counted_by_merchant_account(storage: Storage) -> None:
    spain = MerchantAccount("spain")
    waits = [(MERCHANT_ACCOUNT, None), (spain, 2 * MINUTE), (spain, DAY), (MERCHANT_ACCOUNT, DAY)]
    with storage.write() as unit:
        for number, (account, wait) in enumerate(waits):
            configuration = a_configuration(merchant_account=account)
            silent = {"unanswered_since": None if wait is None else NOW - wait}
            token_id, token = TokenId(a_uuid(number)), CardToken(f"token-{number}")
            unit.sessions.add(a_session(token_id=token_id, configuration=configuration, **silent))
            unit.discards.add(a_discard(token=token, merchant_account=account, **silent))
            unit.accounts.add(an_account(number, merchant_account=account, due_at=NOW, **silent))
        for repository in (unit.sessions, unit.discards, unit.accounts):
            assert repository.unanswered() == {
                PspAccount(PROVIDER, MERCHANT_ACCOUNT): Waiting(1, NOW - DAY),
                PspAccount(PROVIDER, spain): Waiting(2, NOW - DAY),
            }
            assert repository.count_due(NOW + DAY) == Waiting(
                4, NOW + 30 * MINUTE if repository is unit.sessions else NOW
            )


def test_jobs_for_all_merchant_accounts_take_turns_even_if_one_account_has_a_backlog(
    storage: Storage,
) -> None:
    with storage.write() as unit:
        for number in range(9):
            merchant_account = MerchantAccount("backlog" if number < 7 else f"new {number}")
            at = {"merchant_account": merchant_account, "due_at": NOW - (9 - number) * MINUTE}
            configuration = a_configuration(merchant_account=merchant_account)
            unit.sessions.add(
                a_session(
                    token_id=TokenId(a_uuid(number)),
                    configuration=configuration,
                    due_at=at["due_at"],
                )
            )
            unit.discards.add(a_discard(token=CardToken(f"token-{number}"), **at))
        for repository in (unit.sessions, unit.discards):
            taken = [
                repository.take_due(NOW + turn * MICROSECOND, until=NOW + MINUTE)
                for turn in range(3)
            ]
            assert {each.psp_account.merchant_account for each in taken if each} == {
                "backlog",
                "new 7",
                "new 8",
            }


def test_the_number_of_card_refreshes_per_minute_is_limited_for_each_merchant_account(
    storage: Storage,
) -> None:
    spain = MerchantAccount("spain")
    with storage.write() as unit:
        for number in range(READINGS_PER_MINUTE + 2):
            unit.accounts.add(an_account(number, due_at=NOW))
        unit.accounts.add(an_account(99, merchant_account=spain, due_at=NOW))

        def takes(now: datetime) -> int:
            taken = 0
            while unit.accounts.take_due(now, until=NOW + DAY):
                taken += 1
            return taken

        assert takes(NOW) == READINGS_PER_MINUTE + 1
        assert not unit.accounts.is_any_due(NOW)
        assert unit.accounts.count_asked(NOW) == {
            PspAccount(PROVIDER, MERCHANT_ACCOUNT): READINGS_PER_MINUTE,
            PspAccount(PROVIDER, spain): 1,
        }
        assert takes(NOW + MINUTE) == 2
