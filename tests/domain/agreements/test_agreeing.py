"""A guest agrees to charges for a booking and adds a card."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest

from adapters.psp_suite.samples import OTHER_GUEST_ID, a_uuid
from domain.agreements.agreement import EndOfAgreement
from domain.agreements.click import MAX_CLICKS, click_for
from domain.errors import (
    AgreementEnded,
    AgreementNotFound,
    AgreementReferenceUsed,
    ConsentNotSet,
    GuestIdNotUsable,
    IdempotencyKeyReused,
    InvalidField,
    TooManyAgreements,
)
from domain.events.event import EventType
from domain.hosted_payments.link import ClickNeeded, LinkExpired
from domain.identifiers import CallerName
from domain.permissions import Caller, Permission
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_guest
from tests.domain.agreements.bookings import (
    DAY,
    a_booking,
    agree,
    agreement_on_page,
    agreements,
    end,
    guaranteed,
    guaranteed_card,
    has_20_open_agreements,
    page_content,
    started,
    takes_agreements,
)
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, REDIRECT_URI, Installation, Trouble

pytestmark = pytest.mark.usefixtures("center_takes_agreements")


def test_a_card_is_kept_for_a_week_after_its_booking_ends(installation: Installation) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ADDED])
    clicked_at = installation.clock.now()
    session = guaranteed(installation)

    (account,) = installation.accounts()
    (agreement,) = agreements(installation, account)
    assert session.status is SessionStatus.COMPLETED
    assert agreement.terms == session.agreement
    assert agreement.agreed_at == clicked_at
    assert account.keep_until == agreement.kept_until == agreement.terms.ends_at + 7 * DAY
    (told,) = installation.deliveries()
    assert (told.event.agreement_id, told.event.agreement_reference, told.event.status) == (
        agreement.agreement_id,
        "booking-17",
        "open",
    )


def test_an_agreement_stores_the_text_that_the_guest_was_shown(installation: Installation) -> None:
    session = started(installation)
    shown = agreement_on_page(installation, session)
    agree(installation, session)
    # The operator changes everything after the click.
    installation.container.set_center()(CENTER_ID, {"time_zone": "Asia/Tokyo"})
    installation.configure(keep_after_end_days=30)
    installation.type_card_and_return(session)

    (account,) = installation.accounts()
    (agreement,) = agreements(installation, account)
    assert (agreement.shown, agreement.kept_until) == (shown.text, shown.kept_until)
    (consent,) = installation.consents(account)
    assert (consent.text, consent.version) == (shown.text.text, shown.text.version)


def test_guests_always_use_our_page_to_agree_to_a_booking(installation: Installation) -> None:
    session = started(installation)
    with pytest.raises(ClickNeeded):
        installation.open_page(session)
    with pytest.raises(ClickNeeded):
        agree(installation, session, agreed="another text")
    agree(installation, session)
    request = installation.session(session.token_id).current_attempt.request
    assert request.consent.text.startswith("This card guarantees your booking at Harbor Spa: ")


def test_the_agreement_text_changes_when_the_free_cancellation_period_ends(
    installation: Installation,
) -> None:
    installation.configure(link_minutes=30 * 24 * 60)
    session = started(installation, link_minutes=30 * 24 * 60)
    early = agreement_on_page(installation, session)
    installation.clock.advance(9 * DAY + timedelta(hours=1))
    late = agreement_on_page(installation, session)
    assert "free of charge until" in early.text.text
    assert "no longer be cancelled" in late.text.text
    with pytest.raises(ClickNeeded):
        agree(installation, session, agreed=early.digest)


@pytest.mark.parametrize("expiry", [(9, 2031), (10, 2033)])
def test_adding_the_same_card_without_a_booking_clears_its_removal_date(
    installation: Installation, expiry: tuple[int, int]
) -> None:
    guaranteed(installation)
    installation.clock.advance(timedelta(hours=1))
    installation.stored_card(expiry=expiry)
    (account,) = installation.accounts()
    assert account.keep_until is None
    with installation.storage.read() as unit:
        (applying, _) = unit.consents.of(account)
    assert applying.version == account.consent_version == "2026-11"


@pytest.mark.parametrize("keeps_first", [True, False])
def test_sessions_for_two_bookings_with_the_same_card_may_settle_in_either_order(
    installation: Installation, keeps_first: bool
) -> None:
    first = started(installation, agreement=a_booking(installation, 40, reference="first"))
    second = started(installation, agreement=a_booking(installation, 10, reference="second"))
    agree(installation, first, keeps=keeps_first)
    agree(installation, second)
    for session in (first, second):
        installation.type_card(session)
        installation.clock.advance(timedelta(seconds=5))
    for session in (second, first):
        installation.return_to_shop(session)

    (account,) = installation.accounts()
    found = agreements(installation, account)
    assert {each.terms.reference for each in found} == {"first", "second"}
    kept_until = max(each.kept_until for each in found)
    assert account.keep_until == (None if keeps_first else kept_until)
    (applying, _) = installation.consents(account)
    assert applying.version == account.consent_version
    assert (applying.text not in [each.shown.text for each in found]) is keeps_first
    installation.reconcile()
    assert installation.tokens_at_psp() == {account.token}


def test_settling_a_late_session_that_clears_the_removal_date_sends_an_event(
    installation: Installation,
) -> None:
    installation.has_endpoint(types=[EventType.ACCOUNT_RENEWED])
    late = installation.session_with_card()
    installation.clock.advance(timedelta(minutes=1))
    account = guaranteed_card(installation)

    installation.settle(late.token_id)

    assert installation.account(account.account_id).keep_until is None
    (told,) = installation.deliveries()
    assert (told.event.token_id, told.event.account_id) == (late.token_id, account.account_id)


def test_adding_a_booking_does_not_change_the_general_consent_to_keep_the_card(
    installation: Installation,
) -> None:
    kept = installation.stored_card()
    installation.clock.advance(timedelta(hours=1))
    account = guaranteed_card(installation)
    assert (account.keep_until, account.consent_version) == (None, kept.consent_version)


@pytest.mark.parametrize("key", [None, "key"])
@pytest.mark.parametrize("is_at_once", [True, False])
def test_repeating_add_card_for_a_booking_returns_the_same_session(
    installation: Installation, is_at_once: bool, key: str | None
) -> None:
    booking = a_booking(installation)
    found: list[CardSession] = []

    def add() -> None:
        found.append(installation.add_card(agreement=booking))

    if is_at_once:
        installation.before_next_write(add)
    else:
        add()
    assert [installation.add_card(agreement=booking, idempotency_key=key)] == found


def test_a_booking_with_another_reference_gets_another_session(installation: Installation) -> None:
    booking = a_booking(installation)
    first = installation.add_card(agreement=booking)
    with pytest.raises(AgreementReferenceUsed):
        installation.add_card(agreement=booking | {"description": "3 × massage"})
    second = installation.add_card(agreement=booking | {"reference": "booking-18"})
    assert second.token_id != first.token_id


def test_an_idempotency_key_cannot_be_used_for_another_booking(installation: Installation) -> None:
    booking = a_booking(installation)
    installation.add_card(agreement=booking)
    installation.add_card(agreement=booking, idempotency_key="key")
    with pytest.raises(IdempotencyKeyReused):
        installation.add_card(agreement=booking | {"reference": "other"}, idempotency_key="key")
    with pytest.raises(AgreementReferenceUsed):
        installation.add_card(source=5, agreement=booking, idempotency_key="other-key")
    assert installation.add_card(idempotency_key="other-key").agreement is None


def test_a_booking_gets_a_new_session_if_its_last_session_ended_without_a_card(
    installation: Installation,
) -> None:
    booking = a_booking(installation)
    first = installation.add_card(agreement=booking)
    installation.clock.advance(timedelta(hours=1))
    installation.reconcile()
    second = installation.add_card(agreement=booking)
    assert second.token_id != first.token_id
    assert installation.add_card(agreement=booking) == second


@pytest.mark.parametrize("change", ["nothing", "agreement ended", "card removed"])
def test_a_booking_gets_a_new_session_only_if_no_card_guarantees_the_booking(
    installation: Installation, change: str
) -> None:
    booking = a_booking(installation)
    first = guaranteed(installation, agreement=booking)
    (account,) = installation.accounts()
    if change == "agreement ended":
        (agreement,) = agreements(installation, account)
        end(installation, agreement)
    elif change == "card removed":
        installation.remove_card(account)
    is_same = installation.add_card(agreement=booking).token_id == first.token_id
    assert is_same is (change == "nothing")


def test_an_agreement_requires_the_center_to_have_a_reservation_text(
    installation: Installation,
) -> None:
    installation.has_other_center()
    with pytest.raises(ConsentNotSet):
        started(installation, center_id=OTHER_CENTER_ID)
    installation.container.set_reservation_text()(CENTER_ID, "en", off=True)
    with pytest.raises(ConsentNotSet):
        started(installation)


@pytest.mark.parametrize("late", ["typed late", "reported after the card had to go"])
def test_a_card_that_is_typed_or_reported_too_late_for_its_booking_is_discarded(
    installation: Installation, late: str
) -> None:
    booking = a_booking(installation, 0, cancel_by=None)
    ends_at = installation.clock.now() + timedelta(minutes=5)
    session = started(installation, agreement=booking | {"ends_at": ends_at.isoformat()})
    agree(installation, session)
    if late == "typed late":
        # The PSP's page lives longer than the booking.
        installation.clock.advance(timedelta(minutes=6))
    installation.type_card(session)
    installation.clock.advance(timedelta(hours=1) if late == "typed late" else 8 * DAY)
    installation.reconcile()

    ended = installation.session(session.token_id)
    assert ended.failure is not None
    assert ended.failure.type == AgreementEnded.type
    installation.reconcile()
    assert installation.tokens_at_psp() == frozenset()


def test_the_link_for_a_booking_expires_when_the_booking_ends(installation: Installation) -> None:
    booking = a_booking(installation, 0, cancel_by=None)
    booking["ends_at"] = (installation.clock.now() + timedelta(minutes=5)).isoformat()
    session = started(installation, agreement=booking)
    assert session.expires_at == datetime.fromisoformat(booking["ends_at"])
    installation.clock.advance(timedelta(minutes=5))
    with pytest.raises(LinkExpired):
        installation.open_page(session)


def test_a_card_has_at_most_20_open_agreements(installation: Installation) -> None:
    account = guaranteed_card(installation)
    has_20_open_agreements(installation, account)
    with pytest.raises(TooManyAgreements):
        started(installation, agreement=a_booking(installation, reference="one more"))

    replaces = agreements(installation, account)[0].agreement_id
    changed = a_booking(installation, reference="changed", replaces=replaces)
    assert guaranteed(installation, agreement=changed).status is SessionStatus.COMPLETED

    installation.stored_card(OTHER_GOOD_CARD)
    session = guaranteed(installation, agreement=a_booking(installation, reference="one more"))
    assert session.failure is not None
    assert session.failure.type == TooManyAgreements.type


@pytest.mark.parametrize(
    ("language", "locale", "button"),
    [("de", "de", "Zustimmen und Buchung garantieren"), ("de", "fr", "Agree and guarantee")],
)
def test_the_agreement_text_is_shown_in_a_language_that_the_center_has_set(
    installation: Installation, language: str, locale: str, button: str
) -> None:
    takes_agreements(installation, language)
    session = started(installation, locale=locale)
    shown = agreement_on_page(installation, session)
    assert shown.text.button.startswith(button)
    agree(installation, session)
    assert installation.return_to_shop(session) == REDIRECT_URI


def test_agreeing_to_a_changed_booking_replaces_the_agreement(installation: Installation) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ENDED])
    account = guaranteed_card(installation, agreement=a_booking(installation, 40))
    (old,) = agreements(installation, account)
    sooner = a_booking(installation, 5, reference="booking-17/2", replaces=old.agreement_id)
    session = started(installation, agreement=sooner)
    assert agreements(installation, account) == [old]

    agree(installation, session)
    installation.type_card_and_return(session)

    (account,) = installation.accounts()
    old, new = sorted(agreements(installation, account), key=lambda each: each.terms.reference)
    assert (old.reason, new.terms.replaces) == (EndOfAgreement.REPLACED, old.agreement_id)
    assert account.keep_until == new.kept_until
    (told,) = installation.deliveries()
    assert (told.event.agreement_id, told.event.reason) == (old.agreement_id, "replaced")


def test_a_booking_can_replace_only_an_open_agreement_of_the_same_guest(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    (agreement,) = agreements(installation, account)
    other = a_booking(installation, reference="other", replaces=agreement.agreement_id)
    for replaces in (a_uuid(999), "booking-17"):
        with pytest.raises(InvalidField, match=r"agreement\.replaces must be"):
            started(installation, agreement=other | {"replaces": replaces})
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    with pytest.raises(InvalidField, match=r"agreement\.replaces must be an open agreement"):
        started(installation, guest_id=OTHER_GUEST_ID, agreement=other)
    installation.clock.advance(20 * DAY)
    with pytest.raises(InvalidField, match=r"agreement\.replaces must be an open agreement"):
        started(
            installation,
            agreement=other
            | a_booking(installation, reference="late")
            | {"replaces": agreement.agreement_id},
        )


def test_an_outdated_form_that_is_sent_after_the_guest_agreed_changes_nothing(
    installation: Installation,
) -> None:
    session = started(installation)
    agree(installation, session)
    clicks = installation.session(session.token_id).clicks
    agree(installation, session, agreed="earlier", keeps=True)
    assert installation.session(session.token_id).clicks == clicks


# A mail scanner presses buttons, and it is not known in which browser the card is typed.
@pytest.mark.parametrize(
    ("clicks", "is_kept"),
    [
        (["yes here", "no here"], False),
        (["no here", "yes here"], True),
        (["yes here", "no elsewhere", "yes in a third browser"], False),
        (["no here", "yes elsewhere"], False),
        (["yes here", "no elsewhere"], False),
    ],
)
def test_a_card_is_kept_only_if_the_box_was_ticked_at_the_last_click_in_each_browser(
    installation: Installation, clicks: list[str], is_kept: bool
) -> None:
    session = started(installation)
    for click in clicks:
        box, _, browser = click.partition(" ")
        agree(installation, session, keeps=box == "yes", browser=browser)
        installation.clock.advance(timedelta(seconds=20))
    installation.type_card_and_return(session)
    (account,) = installation.accounts()
    assert (account.keep_until is None) is is_kept


def test_the_first_click_applies_if_later_clicks_displaced_the_last_click_before_the_card(
    installation: Installation,
) -> None:
    session = started(installation)
    agree(installation, session, keeps=True)
    installation.clock.advance(timedelta(seconds=20))
    agree(installation, session, keeps=False)
    agreed_at = installation.clock.now()
    installation.type_card(session)
    installation.provider.have(Trouble.BEFORE_IT_ACTED, "outcome")
    for _ in range(MAX_CLICKS + 5):
        installation.clock.advance(timedelta(seconds=20))
        agree(installation, session, keeps=True)
        installation.clock.advance(timedelta(seconds=20))
        agree(installation, session, keeps=False)
    clicks = installation.session(session.token_id).clicks
    assert clicks is not None
    assert len(clicks) == MAX_CLICKS
    # Later clicks displaced the last click before the card, so the first click applies, but
    # without the ticked box.
    click = click_for(clicks, 1, agreed_at)
    assert click is not None
    assert click.agreed_at == clicks[0].agreed_at


def test_a_caller_does_not_get_the_link_that_another_caller_created(
    installation: Installation,
) -> None:
    booking = a_booking(installation)
    session = installation.add_card(agreement=booking)
    other = Caller(
        name=CallerName("partner"), permissions=frozenset({Permission.GUESTS_ADD}), centers=None
    )
    with pytest.raises(AgreementReferenceUsed):
        installation.add_card(other, agreement=booking)
    assert installation.add_card(agreement=booking) == session


def test_a_booking_with_two_sessions_has_one_open_agreement(installation: Installation) -> None:
    booking = a_booking(installation)
    first = installation.add_card(agreement=booking)
    agree(installation, first)
    installation.type_card(first)
    installation.provider.have(Trouble.BEFORE_IT_ACTED, "outcome")
    installation.clock.advance(timedelta(hours=1))
    second = installation.add_card(agreement=booking)
    installation.provider.recover()
    agree(installation, second)
    installation.type_card(second)
    for session in (second, first):
        installation.return_to_shop(session)
    (account,) = installation.accounts()
    open_ones = [each for each in agreements(installation, account) if each.ended_at is None]
    assert len(open_ones) == 1


@pytest.mark.parametrize("number", [GOOD_CARD, OTHER_GOOD_CARD], ids=["same card", "other card"])
def test_a_card_reported_late_under_old_terms_does_not_replace_the_newer_agreement(
    installation: Installation, number: str
) -> None:
    account = guaranteed_card(
        installation, agreement=a_booking(installation, reference="booking-1")
    )
    dear = started(installation, agreement=a_booking(installation, 20))
    agree(installation, dear)
    installation.clock.advance(timedelta(seconds=5))
    installation.type_card(dear, number)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.clock.advance(timedelta(seconds=5))
    installation.cancel_session(dear)
    cheap = {"no_show": {"amount": "20.00", "currency": "EUR"}, "late_cancellation": None}
    cheaper = started(installation, agreement=a_booking(installation, 20, reuse="offer", **cheap))
    assert page_content(installation, cheaper).card == account
    agree(installation, cheaper, card=account)
    installation.provider.recover()
    installation.clock.advance(timedelta(hours=1))
    installation.reconcile()

    assert installation.session(dear.token_id).status is SessionStatus.COMPLETED
    now = installation.clock.now()
    found = [
        each
        for it in installation.accounts()
        for each in agreements(installation, it)
        if each.terms.reference == "booking-17" and each.allows_charges(now)
    ]
    assert [(each.token_id, each.account_id) for each in found] == [
        (cheaper.token_id, account.account_id)
    ]


@pytest.mark.parametrize("is_named", [True, False])
def test_an_agreement_that_is_replaced_after_its_booking_ended_does_not_allow_charges(
    installation: Installation, *, is_named: bool
) -> None:
    account = guaranteed_card(installation, agreement=a_booking(installation, 1))
    (first,) = agreements(installation, account)
    installation.clock.advance(DAY + timedelta(minutes=50))
    named = {"reference": "booking-18", "replaces": first.agreement_id}
    session = started(installation, agreement=a_booking(installation, 3, **named))
    installation.clock.advance(timedelta(minutes=15))
    installation.container.end_agreements()()
    if not is_named:
        # Its agreement has ended, so the booking has another session.
        session = started(installation, agreement=a_booking(installation, 4))
    agree(installation, session)
    installation.type_card_and_return(session)

    now = installation.clock.now()
    chargeable = [each for each in agreements(installation, account) if each.allows_charges(now)]
    assert [each.token_id for each in chargeable] == [session.token_id]


def test_a_guest_may_still_agree_after_the_center_has_removed_its_reservation_text(
    installation: Installation,
) -> None:
    session = started(installation)
    installation.container.set_reservation_text()(CENTER_ID, "en", off=True)
    installation.container.set_center()(CENTER_ID, {"time_zone": None})
    agree(installation, session)
    installation.type_card_and_return(session)
    assert len(installation.accounts()) == 1


def test_a_card_typed_before_its_booking_ended_can_be_stored_afterwards(
    installation: Installation,
) -> None:
    session = started(installation, agreement=a_booking(installation, 0, cancel_by=None))
    agree(installation, session)
    installation.type_card(session)
    installation.clock.advance(timedelta(hours=2))
    installation.reconcile()
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_reading_the_agreement_of_an_erased_guest_is_refused(installation: Installation) -> None:
    installation.has_endpoint(types=[EventType.AGREEMENT_ENDED])
    session = guaranteed(installation)
    (account,) = installation.accounts()
    (agreement,) = agreements(installation, account)
    installation.erase_guest()
    with pytest.raises(AgreementNotFound):
        installation.container.read_agreement()(
            installation.caller, guest_id=session.guest_id, agreement_id=agreement.agreement_id
        )
    installation.clock.advance(11 * DAY)
    installation.container.end_agreements()()
    assert installation.deliveries() == ()


def test_add_card_refuses_a_guest_id_that_is_not_a_uuid(installation: Installation) -> None:
    with pytest.raises(GuestIdNotUsable):
        started(installation, guest_id="x")
