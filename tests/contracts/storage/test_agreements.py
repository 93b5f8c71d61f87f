"""Agreements, and the cards that they keep."""

from __future__ import annotations

from dataclasses import replace
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
from tests.contracts.storage.records import DAY, MICROSECOND, OTHER_TOKEN_ID, add
from tests.databases import change_by_hand, committed, transaction_of

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


def test_agreements_can_be_moved_to_another_account_or_guest(storage: Storage) -> None:
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


def test_the_session_of_a_booking_is_the_session_that_was_stored_last(
    storage: Storage,
) -> None:
    with committed(storage) as unit:
        unit.agreements.name_session(GUEST_ID, CENTER_ID, "17", TOKEN_ID)
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "17") == TOKEN_ID
        unit.agreements.name_session(GUEST_ID, CENTER_ID, "17", OTHER_TOKEN_ID)
    with storage.read() as unit:
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "17") == OTHER_TOKEN_ID
        for other in ((OTHER_GUEST_ID, CENTER_ID, "17"), (GUEST_ID, OTHER_CENTER_ID, "17")):
            assert unit.agreements.session_of(*other) is None
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "18") is None


def test_a_booking_moves_to_another_guest_unless_that_guest_has_the_same_booking(
    storage: Storage,
) -> None:
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


def test_due_agreements_are_found_in_order_of_their_due_times(storage: Storage) -> None:
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


def test_cards_that_are_no_longer_to_be_kept_are_found_in_order(storage: Storage) -> None:
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


def test_completed_sessions_whose_booking_has_no_stored_agreement_are_found(
    storage: Storage,
) -> None:
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


ENDED = an_agreement(1, due_at=None, ended_at=NOW)
DELIVERED = an_event_delivery(status=DeliveryStatus.DELIVERED, due_at=None)
LATER = ENDED.kept_until + MICROSECOND


def completed(account_id: AccountId = FIRST) -> CardSession:
    """Return the completed session of an agreement."""
    return a_session(
        status=SessionStatus.COMPLETED,
        account_id=account_id,
        agreement=terms_of_a_booking(),
        ended_at=NOW,
        due_at=None,
    )


def forgotten(storage: Storage) -> list[int]:
    """Delete old records. Return the numbers of deliveries, sessions and accounts deleted."""
    with committed(storage) as unit:
        return [
            repository.forget(before=LATER)
            for repository in (unit.event_deliveries, unit.sessions, unit.accounts)
        ]


def test_an_old_agreement_is_deleted_even_if_its_card_stays(storage: Storage) -> None:
    due, later = an_agreement(2), replace(ENDED, agreement_id=an_agreement(3).agreement_id)
    with committed(storage) as unit:
        add(unit, an_account(1), ENDED, due, replace(later, kept_until=LATER))
    with committed(storage) as unit:
        assert unit.agreements.forget(before=ENDED.kept_until) == 0
        assert unit.agreements.forget(before=LATER) == 1
        assert unit.agreements.forget(before=LATER) == 0
    with storage.read() as reading:
        left = {each.agreement_id for each in reading.agreements.of_account(FIRST)}
        assert left == {due.agreement_id, later.agreement_id}
        assert reading.accounts.get(FIRST) == an_account(1)


def test_records_that_belong_to_an_agreement_are_kept_as_long_as_the_agreement(
    storage: Storage,
) -> None:
    with committed(storage) as unit:
        unit.guests.put_many([a_guest()])
        # Events before and after the agreement are kept.
        unit.event_deliveries.add(DELIVERED)
        add(unit, an_account(1, removed_at=NOW), completed(), ENDED)
        unit.event_deliveries.add(
            an_event_delivery(2, status=DeliveryStatus.DELIVERED, due_at=None)
        )
    assert forgotten(storage) == [0, 0, 0]
    with committed(storage) as unit:
        unit.agreements.forget(before=LATER)
    assert forgotten(storage) == [2, 1, 1]


def test_the_records_of_an_agreement_are_kept_after_the_agreement_moved_to_another_account(
    storage: Storage,
) -> None:
    with committed(storage) as unit:
        unit.guests.put_many([a_guest()])
        add(unit, an_account(1, removed_at=NOW), an_account(2), completed(), ENDED)
        unit.event_deliveries.add(DELIVERED)
        unit.agreements.move(FIRST, SECOND)
        unit.accounts.update(an_account(2, removed_at=NOW))
    assert forgotten(storage) == [0, 0, 0]
    with storage.read() as reading:
        for account_id in (FIRST, SECOND):
            (found,) = reading.agreements.given_with(account_id)
            assert found.account_id == SECOND
    with committed(storage) as unit:
        unit.agreements.forget(before=LATER)
    assert forgotten(storage) == [1, 1, 2]


def test_old_records_without_an_agreement_are_deleted(storage: Storage) -> None:
    other = replace(completed(), token_id=OTHER_TOKEN_ID, link_key=None)
    of_other = replace(DELIVERED.event, token_id=OTHER_TOKEN_ID)
    with committed(storage) as unit:
        unit.guests.put_many([a_guest()])
        add(unit, an_account(1), an_account(2, removed_at=NOW), other, ENDED)
        unit.event_deliveries.add(replace(DELIVERED, event=of_other))
    assert forgotten(storage) == [1, 1, 1]


def test_the_consent_to_a_booking_is_deleted_together_with_its_agreement(storage: Storage) -> None:
    general = a_consent(account_id=FIRST, token_id=OTHER_TOKEN_ID, text="Keep my card.")
    booking = a_consent(
        account_id=FIRST,
        token_id=TOKEN_ID,
        version=ENDED.shown.version,
        language=ENDED.shown.language,
        text=ENDED.shown.text,
    )
    with committed(storage) as unit:
        session = completed()
        add(unit, an_account(1), an_account(2), session, ENDED, general, booking)
        unit.consents.copy(FIRST, SECOND)
        # A second agreement, with the box ticked, in whose session the guest gave a consent.
        add(unit, replace(an_agreement(2), token_id=OTHER_TOKEN_ID, due_at=None, ended_at=NOW))
    with committed(storage) as unit:
        assert unit.agreements.forget(before=LATER) == 2
    with storage.read() as reading:
        for account in (an_account(1), an_account(2)):
            assert [each.text for each in reading.consents.of(account)] == [general.text]
        rows = transaction_of(reading).execute("SELECT text FROM consent_texts").fetchall()
        assert rows == [(general.text,)]


def test_events_about_an_erased_guest_are_not_kept_as_evidence(storage: Storage) -> None:
    with committed(storage) as unit:
        unit.guests.put_many([a_guest()])
        add(unit, an_account(1), completed(), ENDED)
        unit.event_deliveries.add(DELIVERED)
    assert forgotten(storage)[0] == 0
    with committed(storage) as unit:
        unit.guests.remove(GUEST_ID)
        unit.event_deliveries.add(
            an_event_delivery(2, status=DeliveryStatus.DELIVERED, due_at=None)
        )
        unit.event_deliveries.no_longer_evidence(GUEST_ID)
    assert forgotten(storage) == [2, 0, 0]


def test_the_browser_that_was_recorded_for_a_click_is_deleted_after_the_session_ended(
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
