"""Completes agreements that an earlier release left out when it stored a card."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from domain.cards.account import Account
from domain.events.event import EventType
from domain.sessions.session import CardSession
from entrypoints.worker.reports import NotAgreedLog
from tests.databases import change_by_hand
from tests.domain.agreements.bookings import a_booking, agree, agreements, guaranteed
from tests.installation import Installation

pytestmark = pytest.mark.usefixtures("center_takes_agreements")


def settled_by_0_2(
    installation: Installation, account: Account | None = None, *, keeps: bool = False
) -> CardSession:
    """Return a session whose guest agreed. Its card is stored or renewed as 0.2 does it.

    `make test-upgrade` does the same with the real 0.2.
    """
    session = guaranteed(
        installation, keeps=keeps, agreement=a_booking(installation, reference="booking-18")
    )
    (stored,) = installation.accounts()
    line = session.current_attempt.request.consent
    installation.put_account(
        replace(
            stored, keep_until=account.keep_until if account else None, consent_version=line.version
        )
    )
    change_by_hand(
        installation.storage,
        f"DELETE FROM agreements WHERE token_id = '{session.token_id}'",
        # The consent is then read from the session, where it is the line on the PSP's page.
        f"DELETE FROM consents WHERE token_id = '{session.token_id}'",
        "DELETE FROM event_deliveries",
    )
    return session


def complete(installation: Installation) -> Account:
    """Complete the agreements twice. Return the guest's only card."""
    for _ in range(2):
        assert installation.container.complete_agreements()() == []
    (account,) = installation.accounts()
    return account


def test_a_card_that_an_older_release_stored_without_its_agreement_gets_the_agreement(
    installation: Installation,
) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ADDED])
    session = settled_by_0_2(installation)
    account = complete(installation)
    (agreement,) = agreements(installation, account)
    assert (agreement.terms, agreement.token_id) == (session.agreement, session.token_id)
    assert account.keep_until == agreement.kept_until
    (consent,) = installation.consents(account)
    assert (consent.text, consent.version) == (agreement.shown.text, account.consent_version)
    (told,) = installation.deliveries()
    assert told.event.agreement_id == agreement.agreement_id


def test_a_card_stays_on_file_if_the_guest_also_gave_the_general_consent(
    installation: Installation,
) -> None:
    settled_by_0_2(installation, keeps=True)
    account = complete(installation)
    (consent,) = installation.consents(account)
    assert (account.keep_until, account.consent_version) == (None, consent.version)
    assert consent.text not in [each.shown.text for each in agreements(installation, account)]


@pytest.mark.parametrize("was_kept", [True, False])
def test_completing_agreements_does_not_shorten_how_long_a_renewed_card_is_kept(
    installation: Installation, was_kept: bool
) -> None:
    if was_kept:
        before = installation.stored_card()
    else:
        guaranteed(installation, agreement=a_booking(installation, 40))
        (before,) = installation.accounts()
    installation.clock.advance(timedelta(hours=1))
    settled_by_0_2(installation, before)
    account = complete(installation)
    assert account.keep_until == before.keep_until
    assert account.consent_version == before.consent_version
    assert len(agreements(installation, account)) == (1 if was_kept else 2)


def test_a_card_used_for_a_later_booking_is_kept_longer(installation: Installation) -> None:
    settled_by_0_2(installation)
    booking = a_booking(installation, 20, reference="booking-19", reuse="offer")
    session = installation.add_card(agreement=booking)
    (card,) = installation.accounts()
    agree(installation, session, card=card)
    account = complete(installation)
    first, second = agreements(installation, account)
    assert account.keep_until == max(first.kept_until, second.kept_until)


def test_a_later_consent_to_keep_the_card_applies(installation: Installation) -> None:
    settled_by_0_2(installation)
    installation.clock.advance(timedelta(minutes=1))
    guaranteed(installation, keeps=True)
    (before,) = installation.accounts()
    account = complete(installation)
    assert (account.keep_until, account.consent_version) == (None, before.consent_version)
    assert len(agreements(installation, account)) == 2


def test_a_booking_that_the_guest_did_not_agree_to_is_logged_once(
    installation: Installation,
) -> None:
    session = settled_by_0_2(installation)
    change_by_hand(installation.storage, "UPDATE card_sessions SET clicks = NULL")
    chore = NotAgreedLog(installation.container.complete_agreements())
    with capture_logs() as lines:
        for _ in range(2):
            chore()
    assert [(each["event"], each["session"]) for each in lines] == [
        ("booking_without_agreement", session.prefix)
    ]
    assert agreements(installation, *installation.accounts()) == []


@pytest.mark.parametrize("has_clicked", [True, False])
def test_a_booking_from_an_older_release_gets_a_new_session_only_if_the_guest_did_not_agree(
    installation: Installation, has_clicked: bool
) -> None:
    session = settled_by_0_2(installation)
    if not has_clicked:
        change_by_hand(installation.storage, "UPDATE card_sessions SET clicks = NULL")
    again = installation.add_card(agreement=a_booking(installation, reference="booking-18"))
    assert (again.token_id == session.token_id) is has_clicked


@pytest.mark.parametrize("change", ["removed", "erased", "ended long ago"])
def test_no_agreement_is_completed_for_a_removed_card_or_an_old_session(
    installation: Installation, change: str
) -> None:
    settled_by_0_2(installation)
    (account,) = installation.accounts()
    if change == "removed":
        installation.remove_card(account)
    elif change == "erased":
        installation.erase_guest()
    else:
        installation.clock.advance(timedelta(days=8))
    assert installation.container.complete_agreements()() == []
    assert agreements(installation, account) == []
