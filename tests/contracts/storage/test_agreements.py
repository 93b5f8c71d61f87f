"""Agreements, and the cards that they keep."""

from __future__ import annotations

from dataclasses import replace

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, TOKEN_ID, a_uuid
from domain.agreements.click import BrowserOfClick
from domain.identifiers import AccountId
from domain.pagination import PageRequest
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from domain.storage import Storage
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    a_consent,
    a_session,
    an_account,
    an_agreement,
    terms_of_a_booking,
)
from tests.contracts.storage.records import DAY, MICROSECOND, OTHER_TOKEN_ID, add
from tests.databases import committed, transaction_of

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
        unit.agreements.reassign(GUEST_ID, OTHER_GUEST_ID)
    with storage.read() as unit:
        found = {
            reference: unit.agreements.session_of(OTHER_GUEST_ID, CENTER_ID, reference)
            for reference in ("17", "18")
        }
        assert found == {"17": TOKEN_ID, "18": OTHER_TOKEN_ID}
        assert unit.agreements.session_of(GUEST_ID, CENTER_ID, "17") is None


ENDED = an_agreement(1, due_at=None, ended_at=NOW)
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
        # The agreement of a booking that has not ended.
        add(unit, an_agreement(3, account_id=SECOND))
        # A second agreement, in whose session the guest ticked the box and so gave a consent.
        add(unit, replace(an_agreement(2), token_id=OTHER_TOKEN_ID, due_at=None, ended_at=NOW))
    with committed(storage) as unit:
        assert unit.agreements.forget(before=LATER) == 2
    with storage.read() as reading:
        for account in (an_account(1), an_account(2)):
            assert [each.text for each in reading.consents.of(account)] == [general.text]
        rows = transaction_of(reading).execute("SELECT text FROM consent_texts").fetchall()
        assert rows == [(general.text,)]


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
