"""The evidence about a card: what the guest was shown, what happened, and what the shop states."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from adapters.psp_suite.samples import OTHER_GUEST_ID
from domain.agreements.agreement import EVIDENCE_KEPT_FOR
from domain.audit.entry import Action
from domain.cards.account import Account
from domain.disputes.evidence import ClockSource, DisputeEvidence, EndCause, Moment, StatedEnd
from domain.disputes.read_evidence import GuestWasErased
from domain.errors import EvidenceKeyMissing, PaymentAccountNotFound, UserNotAuthorized
from domain.events.event import CardSummary, EventType
from domain.permissions import Permission
from tests.builders import OTHER_CENTER_ID, a_guest
from tests.databases import audit_trail, committed
from tests.domain.agreements.bookings import (
    DAY,
    agree,
    agreement_on_page,
    agreements,
    end,
    guaranteed,
    guaranteed_card,
    second_booking,
    started,
)
from tests.installation import Installation

pytestmark = pytest.mark.usefixtures("center_takes_agreements")
NOTES_BROWSERS = pytest.mark.installed(CARDONFILE_EVIDENCE_BROWSER_DAYS="30")


def evidence(installation: Installation, account: Account) -> DisputeEvidence:
    read = installation.container.read_evidence()
    found = read(installation.caller, guest_id=account.guest_id, account_id=account.account_id)
    return found.document


def until(installation: Installation, time: datetime) -> None:
    installation.clock.advance(time - installation.clock.now())


def test_evidence_separates_what_the_guest_was_shown_from_what_the_shop_stated(
    installation: Installation,
) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ADDED, EventType.AGREEMENT_ENDED])
    agreed_at = installation.clock.now()
    session = guaranteed(installation)
    (account,) = installation.accounts()
    (agreement,) = agreements(installation, account)
    installation.clock.advance(DAY)
    end(installation, agreement, "no_show_charged", at="2026-12-05T15:00:00+01:00")

    found = evidence(installation, account)
    (seen,) = found.agreements
    assert (seen.shown.text, seen.shown.button) == (agreement.shown.text, agreement.shown.button)
    assert (seen.shown.language, seen.shown.version) == ("en", agreement.shown.version)
    assert seen.shown.page == "http://127.0.0.1:8000/hosted-payments"
    assert seen.agreed == Moment(at=agreed_at, clock=ClockSource.SERVICE)
    assert seen.booking == agreement.terms
    assert seen.ended == Moment(at=installation.clock.now(), clock=ClockSource.SERVICE)
    assert seen.ended_by is EndCause.SHOP
    stated_at = datetime(2026, 12, 5, 14, tzinfo=UTC)
    assert seen.stated_by_the_shop == StatedEnd(reason="no_show_charged", at=stated_at)
    (of_session,) = found.sessions
    assert of_session.session == session.prefix
    assert [each.step for each in of_session.steps][:3] == ["created", "opened", "agreed"]
    assert [each.type for each in found.events] == ["agreement.added", "agreement.ended"]
    assert found.guest.name == "Zoë Null"
    # The agreement is the only text: the box was not ticked.
    assert found.consents == []


def test_evidence_contains_the_general_consent_if_the_box_was_ticked(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation, keeps=True)

    (consent,) = evidence(installation, account).consents
    assert consent.shown.box == agreements(installation, account)[0].shown.keep
    assert consent.agreed.clock is ClockSource.SERVICE


def test_evidence_states_whose_clock_timed_a_consent_on_the_psps_page(
    installation: Installation,
) -> None:
    account = installation.stored_card()

    found = evidence(installation, account)
    (consent,) = found.consents
    assert consent.agreed == Moment(at=account.consented_at, clock=ClockSource.PSP)
    assert (consent.shown.page, consent.shown.button) == ("the page of fake", None)
    assert found.agreements == []


def test_evidence_shows_the_card_as_the_guest_typed_it(installation: Installation) -> None:
    account = guaranteed_card(installation)
    then = CardSummary.of(account, authenticated=account.authenticated)
    with committed(installation.storage) as unit:
        unit.accounts.update(replace(account, last_four="1881", expiry_year=2039))

    found = evidence(installation, account)
    assert found.sessions[0].card_then == then
    assert (found.card.details.last_four, found.card.details.expiry_on) == ("1881", "09/39")


def test_evidence_contains_bookings_that_used_the_card_on_file(installation: Installation) -> None:
    account = guaranteed_card(installation)
    session = second_booking(installation)
    shown = agreement_on_page(installation, session)
    agree(installation, session, card=account)

    found = evidence(installation, account)
    second, used = found.agreements[1], found.sessions[1]
    assert (second.session, second.shown.text) == (session.prefix, shown.text.text)
    assert second.agreed.clock is ClockSource.SERVICE
    assert used.session == session.prefix
    # Nobody typed a card, and no bank authenticated the guest, in this session.
    assert used.card_then is None
    assert [each.step for each in used.steps][:3] == ["created", "opened", "agreed"]
    assert used.steps[2].details["card_on_file"] == f"{account.card_logo} {account.last_four}"


def test_evidence_contains_what_the_shop_stated_after_the_booking_ended(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    (agreement,) = agreements(installation, account)
    until(installation, agreement.terms.ends_at)
    installation.container.end_agreements()()
    end(installation, agreement, "no_show_charged")

    (seen,) = evidence(installation, account).agreements
    assert seen.ended_by is EndCause.BOOKING_OVER
    assert seen.stated_by_the_shop == StatedEnd(reason="no_show_charged", at=None)


def deliver(installation: Installation) -> None:
    deliveries, now = installation.deliveries(), installation.clock.now()
    with committed(installation.storage) as unit:
        for each in deliveries:
            unit.event_deliveries.update(each.delivered("200", now))


def forget(installation: Installation) -> None:
    while installation.container.forget_old_records()():
        pass


def test_evidence_is_kept_for_600_days_after_the_last_charge(installation: Installation) -> None:
    account = guaranteed_card(installation)
    (agreement,) = agreements(installation, account)
    # The shop reports an earlier end, which does not shorten the time.
    end(installation, agreement, "cancelled", at="2026-12-05T15:00:00+01:00")
    until(installation, agreement.kept_until + DAY)
    installation.container.remove_ended_cards()()
    installation.reconcile()
    assert installation.account(account.account_id).removed_at is not None

    until(installation, agreement.kept_until + EVIDENCE_KEPT_FOR)
    forget(installation)
    found = evidence(installation, account)
    assert found.card.removed is not None
    assert found.sessions[0].steps
    assert found.agreements[0].ended_by is EndCause.SHOP

    installation.clock.advance(timedelta(seconds=1))
    forget(installation)
    with pytest.raises(PaymentAccountNotFound):
        evidence(installation, account)


def test_evidence_about_an_active_card_omits_old_bookings(installation: Installation) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ADDED])
    account = installation.stored_card()
    (consent,) = installation.consents(account)
    guaranteed(installation)
    (agreement,) = agreements(installation, account)
    deliver(installation)
    assert evidence(installation, account).events

    until(installation, agreement.kept_until + EVIDENCE_KEPT_FOR + DAY)
    installation.container.end_agreements()()
    forget(installation)
    found = evidence(installation, account)
    assert (found.agreements, found.sessions, found.events) == ([], [], [])
    (general,) = found.consents
    assert general.shown.text == consent.text
    assert len(installation.consents(account)) == 1


@pytest.mark.parametrize("days", [0, 500])
def test_evidence_is_complete_for_both_accounts_of_a_card_after_guests_were_merged(
    installation: Installation, days: int
) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ADDED])
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    guaranteed(installation, guest_id=OTHER_GUEST_ID)
    (former,) = installation.accounts(OTHER_GUEST_ID)
    installation.clock.advance(DAY)
    account = installation.stored_card()
    installation.merge_guests(OTHER_GUEST_ID)
    deliver(installation)
    installation.reconcile()
    installation.clock.advance(days * DAY)
    installation.container.end_agreements()()
    forget(installation)

    for each in (account, installation.account(former.account_id)):
        found = evidence(installation, each)
        (agreement,) = found.agreements
        of_agreement = [one for one in found.sessions if one.session == agreement.session]
        assert [one.card_then is not None for one in of_agreement] == [True]
        assert [one.type for one in found.events] == ["agreement.added"]


def test_events_about_an_erased_guest_are_deleted_as_usual(installation: Installation) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ADDED])
    account = guaranteed_card(installation)
    deliver(installation)
    installation.container.erase_guest()(None, guest_id=account.guest_id)
    installation.clock.advance(31 * DAY)
    forget(installation)

    assert installation.deliveries() == ()
    assert agreements(installation, account)


def test_only_the_operator_can_read_evidence_about_an_erased_guest(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    installation.container.erase_guest()(None, guest_id=account.guest_id)
    for_operator = installation.container.read_evidence().for_operator

    with pytest.raises(PaymentAccountNotFound):
        evidence(installation, account)
    with pytest.raises(GuestWasErased):
        for_operator(account.account_id, after_erasure=False)
    found = for_operator(account.account_id, after_erasure=True).document
    assert (found.guest.name, found.guest.email) == (None, None)
    (seen,) = found.agreements
    assert seen.booking.reference == ""
    assert seen.shown.text
    assert seen.ended_by is EndCause.ERASURE
    (noted,) = audit_trail(installation.storage, about=account.account_id)
    assert (noted.action, noted.details) == (Action.EVIDENCE_SHOWN, {"after_erasure": "yes"})


def test_a_caller_without_the_permission_cannot_read_evidence(installation: Installation) -> None:
    account = installation.stored_card()
    read, caller = installation.container.read_evidence(), installation.caller
    ids = {"guest_id": account.guest_id, "account_id": account.account_id}
    other = replace(caller, permissions=frozenset(Permission) - {Permission.GUESTS_EVIDENCE})

    with pytest.raises(UserNotAuthorized):
        read(other, **ids)
    with pytest.raises(PaymentAccountNotFound):
        read(replace(caller, centers=frozenset({OTHER_CENTER_ID})), **ids)
    with pytest.raises(PaymentAccountNotFound):
        read(caller, guest_id=OTHER_GUEST_ID, account_id=account.account_id)


@NOTES_BROWSERS
def test_evidence_names_the_guest_only_if_the_caller_may_view_guests(
    installation: Installation,
) -> None:
    agree(installation, session := started(installation), address="192.0.2.7")
    installation.type_card_and_return(session)
    (account,) = installation.accounts()
    read, caller = installation.container.read_evidence(), installation.caller
    of_center = replace(caller, centers=frozenset({account.center_id}))
    for each, is_named in ((caller, True), (of_center, False)):
        found = read(each, guest_id=account.guest_id, account_id=account.account_id).document
        assert (found.guest.name is not None) is is_named
        assert bool(found.sessions[0].browsers) is is_named


@pytest.mark.installed(CARDONFILE_EVIDENCE_KEYS="")
def test_evidence_cannot_be_read_if_no_signing_key_is_set(installation: Installation) -> None:
    account = installation.stored_card()

    with pytest.raises(EvidenceKeyMissing):
        evidence(installation, account)


@pytest.mark.parametrize(
    "recorded",
    [
        pytest.param([("192.0.2.7", "A browser")], marks=NOTES_BROWSERS, id="enabled"),
        pytest.param([], id="by default"),
    ],
)
def test_the_browser_behind_a_click_is_recorded_only_if_the_operator_has_enabled_that(
    installation: Installation, recorded: list[tuple[str, str]]
) -> None:
    session = started(installation)
    agree(installation, session, address="192.0.2.7", user_agent="A browser")
    installation.type_card_and_return(session)
    (account,) = installation.accounts()

    browsers = evidence(installation, account).sessions[0].browsers
    assert [(each.address, each.user_agent) for each in browsers] == recorded
    installation.clock.advance(31 * DAY)
    installation.container.forget_old_records()()
    assert evidence(installation, account).sessions[0].browsers == ()
