"""Agreements, and the cards that they keep."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, TOKEN_ID, a_uuid
from domain.agreements.click import BrowserOfClick
from domain.events.event import DeliveryStatus
from domain.identifiers import AccountId, LinkKey, TokenId
from domain.pagination import PageRequest
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from domain.storage import Storage
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    a_consent,
    a_guest,
    a_session,
    an_account,
    an_agreement,
    an_event_delivery,
    terms_of_a_booking,
)
from tests.contracts.storage.records import DAY, MICROSECOND, OTHER_TOKEN_ID, add, committed
from tests.databases import change_by_hand

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


def test_a_booking_has_the_session_that_was_named_last(storage: Storage) -> None:
    with committed(storage) as unit:
        unit.agreements.name_session(GUEST_ID, CENTER_ID, "17", TOKEN_ID)
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "17") == TOKEN_ID
        unit.agreements.name_session(GUEST_ID, CENTER_ID, "17", OTHER_TOKEN_ID)
    with storage.read() as unit:
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "17") == OTHER_TOKEN_ID
        for other in ((OTHER_GUEST_ID, CENTER_ID, "17"), (GUEST_ID, OTHER_CENTER_ID, "17")):
            assert unit.agreements.session_of(*other) is None
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "18") is None


def test_bookings_move_to_another_guest_who_has_no_session_for_them(storage: Storage) -> None:
    with committed(storage) as unit:
        for reference in ("17", "18"):
            unit.agreements.name_session(GUEST_ID, CENTER_ID, reference, TOKEN_ID)
        unit.agreements.name_session(OTHER_GUEST_ID, CENTER_ID, "18", OTHER_TOKEN_ID)
        unit.agreements.give(GUEST_ID, OTHER_GUEST_ID)
    with storage.read() as unit:
        found = {
            reference: unit.agreements.session_of(OTHER_GUEST_ID, CENTER_ID, reference)
            for reference in ("17", "18")
        }
        assert found == {"17": TOKEN_ID, "18": OTHER_TOKEN_ID}
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "17") is None


def test_the_agreements_that_are_over_are_found_in_order(storage: Storage) -> None:
    later, first = an_agreement(1, due_at=NOW), an_agreement(2, due_at=NOW - DAY)
    with committed(storage) as unit:
        add(unit, later, first, an_agreement(3, due_at=None))
        add(unit, an_agreement(4, due_at=NOW + MICROSECOND))
    with storage.read() as unit:
        assert [*unit.agreements.due(NOW, at_most=9)] == [first, later]
        assert [*unit.agreements.due(NOW, at_most=1)] == [first]
        assert [*unit.agreements.due(NOW, at_most=1, skip=1)] == [later]
    change_by_hand(
        storage,
        f"UPDATE agreements SET reason = 'odd' WHERE agreement_id = '{first.agreement_id}'",
    )
    with storage.read() as unit:
        assert [*unit.agreements.due(NOW, at_most=9)] == [None, later]


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
        assert [*unit.accounts.kept_until_before(NOW, at_most=1, skip=1)] == [later]
    change_by_hand(
        storage,
        f"UPDATE payment_accounts SET source = 99 WHERE account_id = '{first.account_id}'",
    )
    with storage.read() as unit:
        assert [*unit.accounts.kept_until_before(NOW, at_most=9)] == [None, later]


def test_sessions_about_a_booking_that_lack_their_agreement_are_found(storage: Storage) -> None:
    ended = a_session(agreement=terms_of_a_booking(), status=SessionStatus.COMPLETED, ended_at=NOW)

    def session(number: int, **changes: Any) -> CardSession:  # fields of a session
        key = LinkKey(f"{number}")
        return replace(ended, token_id=TokenId(a_uuid(number)), link_key=key, **changes)

    lacking, complete, failed, without, old = (
        session(701),
        session(702),
        session(703, status=SessionStatus.FAILED),
        session(704, agreement=None),
        session(705, ended_at=NOW - DAY),
    )
    with committed(storage) as unit:
        add(unit, lacking, complete, failed, without, old)
        add(unit, an_agreement(1, token_id=complete.token_id))
        add(unit, an_agreement(2, token_id=lacking.token_id, guest_id=OTHER_GUEST_ID))
    with storage.read() as reading:
        assert [*reading.sessions.without_agreement(since=NOW - DAY)] == [lacking.token_id]
        found = reading.sessions.without_agreement(since=NOW - 2 * DAY)
        assert [*found] == [old.token_id, lacking.token_id]


def test_agreements_are_forgotten_with_their_card(storage: Storage) -> None:
    with committed(storage) as unit:
        add(unit, an_account(1, removed_at=NOW), an_account(2))
        ended = an_agreement(1, due_at=None, ended_at=NOW)
        add(unit, ended, an_agreement(2, account_id=SECOND))
    with committed(storage) as unit:
        assert unit.accounts.forget(before=NOW + DAY, evidence_before=NOW + DAY) == 1
    with storage.read() as unit:
        assert not unit.agreements.of_account(FIRST)
        assert len(unit.agreements.of_account(SECOND)) == 1


def test_all_records_of_a_card_stay_while_an_agreement_is_evidence(
    storage: Storage,
) -> None:
    later = NOW + DAY
    delivery = an_event_delivery(status=DeliveryStatus.DELIVERED, due_at=None)
    session = a_session(status=SessionStatus.COMPLETED, account_id=FIRST, ended_at=NOW, due_at=None)
    with committed(storage) as unit:
        unit.guests.put_many([a_guest()])
        add(unit, an_account(1, removed_at=NOW), session, an_agreement(1))
        unit.event_deliveries.add(delivery)
        unit.consents.add(a_consent(account_id=FIRST, token_id=TOKEN_ID))

    def forgotten(evidence_before: datetime) -> list[int]:
        with committed(storage) as writing:
            return [
                repository.forget(before=later, evidence_before=evidence_before)
                for repository in (writing.event_deliveries, writing.sessions, writing.accounts)
            ]

    assert delivery.event.account_id == FIRST
    assert forgotten(later) == [0, 0, 0]
    with committed(storage) as unit:
        unit.agreements.update(an_agreement(1, due_at=None, ended_at=NOW))
    assert forgotten(NOW) == [0, 0, 0]
    with storage.read() as reading:
        assert [*reading.event_deliveries.of_account(FIRST)] == [delivery]
    assert forgotten(NOW + MICROSECOND) == [1, 1, 1]


def test_the_events_of_an_erased_guest_are_no_evidence(storage: Storage) -> None:
    with committed(storage) as unit:
        add(unit, an_account(1, removed_at=NOW), an_agreement(1))
        unit.event_deliveries.add(an_event_delivery(status=DeliveryStatus.DELIVERED, due_at=None))
    with committed(storage) as unit:
        assert unit.event_deliveries.forget(before=NOW + DAY, evidence_before=NOW) == 1


def test_the_browsers_of_clicks_are_forgotten_after_the_end_of_the_session(
    storage: Storage,
) -> None:
    browser = BrowserOfClick(clicked_at=NOW, address="192.0.2.7", user_agent="A browser")
    session = a_session().clicked_in(browser)
    ended = replace(session, token_id=OTHER_TOKEN_ID, link_key=None, ended_at=NOW)
    with committed(storage) as unit:
        add(unit, session, ended)
    with committed(storage) as unit:
        assert unit.sessions.forget_browsers(before=NOW) == 0
        assert unit.sessions.forget_browsers(before=NOW + DAY) == 1
    with storage.read() as reading:
        assert reading.sessions.get(ended.token_id) == replace(ended, browsers=None)
        assert reading.sessions.get(session.token_id) == session
