from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import timedelta
from threading import Event
from typing import Any

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import (
    GUEST_ID,
    MERCHANT_ACCOUNT,
    NOW,
    OTHER_GUEST_ID,
    TOKEN_ID,
    a_page_request,
)
from domain.identifiers import (
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.psps.hosted_page import PageAttempt
from domain.retries import MAX_BACKOFF, latest_due
from domain.sessions.earlier_page import EarlierPage
from domain.sessions.end import Failure, SessionStatus
from domain.sessions.polling import POLL_EVERY
from domain.sessions.result import CountedBy
from domain.sessions.session import DueSession, SessionFilter
from domain.storage import Storage, WriteUnit
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    PROVIDER,
    a_configuration,
    a_page,
    a_refused_card,
    a_session,
    an_account,
    an_attempt,
)
from tests.contracts.storage.records import (
    DAY,
    MICROSECOND,
    MINUTE,
    OTHER_TOKEN_ID,
    add,
    numbered_sessions,
    store,
)
from tests.databases import change_by_hand, committed
from tests.waiting import LIMIT_SECONDS


def test_a_session_is_found_by_its_merchant_account_and_current_page(storage: Storage) -> None:
    other = MerchantAccount("other")
    elsewhere = a_session(
        token_id=OTHER_TOKEN_ID,
        configuration=a_configuration(merchant_account=other),
        attempt=an_attempt(request=a_page_request(merchant_account=other)),
    )
    store(storage, a_session(attempt=an_attempt()), elsewhere)
    next_one = a_session(attempt=an_attempt(page=a_page(reference="page-2")))
    with storage.write() as unit:
        find = unit.sessions.with_page
        assert find(PROVIDER, MERCHANT_ACCOUNT, "page-1") == a_session(attempt=an_attempt())
        unit.sessions.update(next_one)
        assert find(PROVIDER, MERCHANT_ACCOUNT, "page-1") is None
        assert find(PROVIDER, MERCHANT_ACCOUNT, "page-2") == next_one
        assert find(PROVIDER, other, "page-1") == elsewhere
        assert find(ProviderName("other"), MERCHANT_ACCOUNT, "page-2") is None


def test_no_session_is_found_by_a_malformed_session_id(storage: Storage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        for token_id in ("", "order-7", TOKEN_ID.replace("-", ""), f"{TOKEN_ID}\x00"):
            assert unit.sessions.get(TokenId(token_id)) is None
        assert unit.sessions.get(TOKEN_ID) == a_session()


def test_a_unit_that_takes_a_session_sees_concurrent_changes_by_other_units(
    storage: Storage,
) -> None:
    store(storage, a_session(due_at=NOW - MINUTE), a_session(token_id=OTHER_TOKEN_ID, due_at=NOW))
    looked = Event()

    def change(unit: WriteUnit) -> None:
        session = unit.sessions.get(TOKEN_ID)
        assert session is not None
        looked.set()
        unit.sessions.update(replace(session, due_at=NOW + 5 * MINUTE))
        unit.commit()

    def change_or_take(number: int) -> list[TokenId | None]:
        taken: list[TokenId | None] = []
        if number == 0:
            storage.transact(change)
            return taken
        assert looked.wait(LIMIT_SECONDS)
        for _ in range(2):
            with committed(storage) as unit:
                session = unit.sessions.take_due(NOW, until=NOW + MINUTE)
                taken.append(None if session is None else session.token_id)
        return taken

    assert at_once(2, change_or_take)[1] == [OTHER_TOKEN_ID, None]
    with storage.read() as reading:
        session = reading.sessions.get(TOKEN_ID)
    assert session is not None
    assert session.due_at == NOW + 5 * MINUTE


# Shows F40.
@pytest.mark.parametrize(
    ("state", "waits_at_most"),
    [
        ({"unanswered_since": NOW}, MAX_BACKOFF),
        ({"attempt": an_attempt(), "unanswered_since": NOW}, MAX_BACKOFF),
        ({"attempt": an_attempt()}, POLL_EVERY),
        ({"attempt": an_attempt(page=None)}, POLL_EVERY),
        ({"expires_at": NOW}, POLL_EVERY),
    ],
)
def test_a_session_is_not_delayed_if_a_wrong_clock_set_its_due_time_too_late(
    storage: Storage, state: dict[str, Any], waits_at_most: timedelta
) -> None:
    latest = latest_due(NOW, longest_wait=waits_at_most)
    session = a_session(**{"expires_at": NOW + 9 * DAY, **state})
    for due_at, is_due in ((latest, False), (latest + MICROSECOND, True)):
        with storage.write() as unit:
            unit.sessions.add(replace(session, due_at=due_at))
            assert unit.sessions.is_any_due(NOW) == is_due
            taken = unit.sessions.take_due(NOW, until=NOW + MINUTE)
            assert (taken is not None) == is_due
            assert unit.sessions.take_due(NOW, until=NOW + MINUTE) is None


@pytest.mark.parametrize("attempt", [None, an_attempt(over=True)])
def test_a_session_without_a_page_is_due_when_its_link_expires(
    storage: Storage, attempt: PageAttempt | None
) -> None:
    end = NOW + 365 * DAY
    with storage.write() as unit:
        unit.sessions.add(a_session(attempt=attempt, expires_at=end, due_at=end))
        assert not unit.sessions.is_any_due(NOW)
        assert unit.sessions.take_due(NOW, until=NOW + MINUTE) is None


def test_taking_a_due_session_returns_its_merchant_account(storage: Storage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session(due_at=NOW))
        assert unit.sessions.take_due(NOW, until=NOW + MINUTE) == DueSession(
            TOKEN_ID, PspAccount(PROVIDER, MERCHANT_ACCOUNT)
        )
        assert unit.sessions.get(TOKEN_ID) == a_session(due_at=NOW + MINUTE)


@pytest.mark.parametrize(
    ("wanted", "numbers"),
    [
        (SessionFilter(), [4, 3, 2, 1, 0]),
        (SessionFilter(guest_id=OTHER_GUEST_ID), [4, 1]),
        (SessionFilter(center_id=OTHER_CENTER_ID), [4, 2]),
        (SessionFilter(status=SessionStatus.EXPIRED), [3]),
        (SessionFilter(created_since=NOW + 3 * MINUTE), [4, 3]),
        (SessionFilter(guest_id=OTHER_GUEST_ID, center_id=CENTER_ID, created_since=NOW), [1]),
        (SessionFilter(center_id=OTHER_CENTER_ID, created_since=NOW + 3 * MINUTE), [4]),
    ],
)
def test_a_search_for_sessions_lists_the_matching_sessions_newest_first(
    storage: Storage, wanted: SessionFilter, numbers: list[int]
) -> None:
    sessions = numbered_sessions(
        {"created_at": NOW},
        {"created_at": NOW + MINUTE, "guest_id": OTHER_GUEST_ID},
        {"created_at": NOW + 2 * MINUTE, "center_id": OTHER_CENTER_ID},
        {"created_at": NOW + 3 * MINUTE, "status": SessionStatus.EXPIRED},
        {"created_at": NOW + 4 * MINUTE, "guest_id": OTHER_GUEST_ID, "center_id": OTHER_CENTER_ID},
    )
    store(storage, *sessions)
    with storage.read() as unit:
        assert unit.sessions.search(SessionFilter(), limit=2) == (sessions[4], sessions[3])
        found = unit.sessions.search(wanted, limit=9)
    assert found == tuple(sessions[number] for number in numbers)


def test_sessions_are_counted_by_outcome(storage: Storage) -> None:
    account = an_account()
    failure = Failure(code=400, message="Refused", type="incorrect_billing_address")
    overdue = {"due_at": NOW - MICROSECOND}
    expired = {"status": SessionStatus.EXPIRED, "attempt": an_attempt(over=True), **overdue}
    completed = {"status": SessionStatus.COMPLETED, "account_id": account.account_id}
    sessions = numbered_sessions(
        {"created_at": NOW - MICROSECOND},
        {},
        {"unanswered_since": NOW, "center_id": OTHER_CENTER_ID},
        expired,
        {**expired, "configuration": a_configuration(merchant_account=MerchantAccount("two"))},
        {**completed, "token_id": account.token_id},
        {**completed, "attempt": an_attempt()},
        {"status": SessionStatus.FAILED, "failure": failure},
        {"status": SessionStatus.FAILED, "failure": failure},
        overdue,
        overdue,
        {"due_at": None},
        {"status": SessionStatus.EXPIRED},
        completed,
    )
    with committed(storage) as unit:
        add(unit, account, *sessions)
        # A card that cardonfile's rules refused does not count as refused by the PSP.
        unit.refused_cards.add([a_refused_card(token_id=sessions[3].token_id, number=0)])
        unit.refused_cards.add([a_refused_card(token_id=sessions[4].token_id)])
    change_by_hand(
        storage,
        'UPDATE card_sessions SET failure = \'{"code": 400, "message": "An old one"}\' '
        f"WHERE token_id = '{sessions[8].token_id}'",
    )

    with storage.read() as reading:
        counted = {
            by: reading.sessions.count(by, since=NOW, overdue_before=NOW)
            for by in (None, *CountedBy)
        }
    assert counted[None] == [
        ("", "open", None, 2),
        ("", "overdue", None, 2),
        ("", "abandoned", None, 1),
        ("", "card_on_file_used", None, 1),
        ("", "declined", None, 1),
        ("", "never_opened", None, 1),
        ("", "refused_by_rule", "An old one", 1),
        ("", "refused_by_rule", "incorrect_billing_address", 1),
        ("", "renewed", None, 1),
        ("", "stored", None, 1),
        ("", "waiting_for_psp", None, 1),
    ]
    in_groups = {
        by: Counter(each.group for each in found for _ in range(each.sessions))
        for by, found in counted.items()
    }
    assert in_groups == {
        None: {"": 13},
        CountedBy.CENTER: {CENTER_ID: 12, OTHER_CENTER_ID: 1},
        CountedBy.MERCHANT: {f"fake/{MERCHANT_ACCOUNT}": 12, "fake/two": 1},
    }


def test_the_guests_other_open_sessions_that_have_a_page_can_be_made_due(storage: Storage) -> None:
    with_page: dict[str, Any] = {"attempt": an_attempt(), "due_at": NOW + DAY}
    of_another = {"guest_id": OTHER_GUEST_ID}
    ended = {"status": SessionStatus.EXPIRED, "due_at": None}
    sessions = numbered_sessions(
        with_page,
        {"due_at": NOW + DAY},
        with_page | of_another,
        with_page | ended,
        with_page | {"attempt": an_attempt(over=True)},
        with_page,
    )
    store(storage, *sessions)
    with committed(storage) as unit:
        unit.sessions.make_pages_due(GUEST_ID, NOW, except_for=sessions[-1].token_id)
    with storage.read() as unit:
        due = [found.due_at for each in sessions if (found := unit.sessions.get(each.token_id))]
    assert due == [NOW, NOW + DAY, NOW + DAY, None, NOW + DAY, NOW + DAY]


@pytest.mark.parametrize(
    ("changes", "is_any"),
    [
        ({}, False),
        ({"link_key": None}, True),
        ({"link_key": None, "created_at": NOW - MINUTE}, False),
        ({"link_key": None, "created_at": NOW + MINUTE}, False),
        # An erasure leaves a session like this.
        ({"link_key": None, "redirect_uri": ""}, False),
    ],
)
def test_sessions_without_a_link_key_are_found_by_the_time_of_their_creation(
    storage: Storage, changes: dict[str, Any], is_any: bool
) -> None:
    store(storage, a_session(**changes))
    with storage.read() as unit:
        found = unit.sessions.is_any_without_key(since=NOW - MINUTE, before=NOW + MINUTE)
    assert found is is_any


def test_a_session_is_found_by_an_earlier_page(storage: Storage) -> None:
    first = a_session(attempt=an_attempt())
    page, moved = EarlierPage.of(first), a_session(attempt=an_attempt(page=a_page(reference="2")))
    store(storage, moved, a_session(token_id=OTHER_TOKEN_ID))
    with storage.write() as unit:
        unit.earlier_pages.keep(page)
        unit.earlier_pages.keep(page.due_for_check(NOW))
        found = unit.sessions.with_page(PROVIDER, MERCHANT_ACCOUNT, "page-1")
        assert found == moved
        assert unit.sessions.with_page(PROVIDER, MerchantAccount("other"), "page-1") is None
        assert list(unit.earlier_pages.of(TOKEN_ID)) == [page.due_for_check(NOW)]
        assert list(unit.earlier_pages.of(OTHER_TOKEN_ID)) == []
        unit.earlier_pages.remove(TOKEN_ID, page.number + 1)
        assert len(unit.earlier_pages.of(TOKEN_ID)) == 1
        unit.earlier_pages.remove(TOKEN_ID)
        assert list(unit.earlier_pages.of(TOKEN_ID)) == []
