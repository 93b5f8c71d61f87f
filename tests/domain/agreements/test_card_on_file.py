"""A guest guarantees a booking with a card on file, without typing the card again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.psp_suite.samples import OTHER_GUEST_ID
from domain.cards.account import Account
from domain.centers.payment_configuration import CardsPerGuest
from domain.errors import InvalidField
from domain.events.event import EventType
from domain.hosted_payments.link import ClickNeeded, LinkCancelled
from domain.psps.card import Funding
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from tests.builders import a_guest
from tests.databases import change_by_hand
from tests.domain.agreements.bookings import (
    DAY,
    a_booking,
    agree,
    agreement_on_page,
    agreements,
    guaranteed,
    guaranteed_card,
    has_20_open_agreements,
    page_content,
    second_booking,
    started,
)
from tests.installation import DECLINED_CARD, OTHER_GOOD_CARD, REDIRECT_URI, Installation, Trouble

pytestmark = pytest.mark.usefixtures("center_takes_agreements")


def test_one_click_guarantees_a_booking_with_the_card_on_file(installation: Installation) -> None:
    account = guaranteed_card(installation)
    installation.has_endpoint(types=[EventType.AGREEMENT_ADDED])
    session = second_booking(installation)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    assert page_content(installation, session).card == account

    assert agree(installation, session, card=account) == REDIRECT_URI

    completed = installation.session(session.token_id)
    (kept,) = installation.accounts()
    first, second = agreements(installation, kept)
    assert (completed.status, completed.account_id) == (SessionStatus.COMPLETED, account.account_id)
    assert second.terms == session.agreement
    assert kept.keep_until == second.kept_until > first.kept_until
    assert (kept.token, kept.consent_version) == (account.token, account.consent_version)
    (told,) = installation.deliveries()
    assert told.event.agreement_id == second.agreement_id
    with installation.storage.read() as unit:
        consents = {each.token_id: each for each in unit.consents.of(kept)}
    assert consents[session.token_id].text == second.shown.text


def test_a_click_with_the_box_ticked_keeps_the_card_on_file(installation: Installation) -> None:
    installation.configure(cards_per_guest=CardsPerGuest.ONE)
    account = guaranteed_card(installation)
    session = second_booking(installation)
    general = agreement_on_page(installation, session).general

    agree(installation, session, card=account, keeps=True)

    (kept,) = installation.accounts()
    assert (kept.keep_until, kept.consent_version) == (None, general.version)


def test_a_second_click_on_the_agree_button_changes_nothing(installation: Installation) -> None:
    account = guaranteed_card(installation)
    session = second_booking(installation)
    agree(installation, session, card=account)
    before = installation.session(session.token_id)

    assert agree(installation, session, agreed="x", card=account) == REDIRECT_URI
    assert installation.session(session.token_id) == before
    assert len(agreements(installation, account)) == 2


def test_the_card_on_file_is_offered_only_if_requested(installation: Installation) -> None:
    guaranteed(installation)
    session = started(installation, agreement=a_booking(installation, reference="booking-18"))
    assert page_content(installation, session).card is None


def test_an_unknown_value_for_the_field_reuse_is_refused(installation: Installation) -> None:
    with pytest.raises(InvalidField, match=r"agreement\.reuse"):
        second_booking(installation, reuse="always")


def _the_card_is_removed(installation: Installation, account: Account) -> None:
    installation.remove_card(account)


def _the_card_expires_before_the_booking(installation: Installation, account: Account) -> None:
    now = installation.clock.now()
    installation.put_account(replace(account, expiry_year=now.year, expiry_month=now.month))


def _the_psp_does_not_know_the_card(installation: Installation, account: Account) -> None:
    since = installation.clock.now()
    installation.put_account(replace(account, refusals=1, refused_since=since))


def _the_card_had_to_go(installation: Installation, account: Account) -> None:
    yesterday = installation.clock.now() - DAY
    installation.put_account(replace(account, keep_until=yesterday))


def _an_agreement_of_the_card_cannot_be_decoded(installation: Installation, _: Account) -> None:
    change_by_hand(installation.storage, "UPDATE agreements SET shown = '{}'")


def _another_guest_is_merged_into_the_guest(installation: Installation, _: Account) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    installation.merge_guests(OTHER_GUEST_ID)


def _the_link_is_a_day_old(installation: Installation, _: Account) -> None:
    installation.clock.advance(DAY + timedelta(seconds=1))


@pytest.mark.parametrize(
    "happens",
    [
        _the_card_is_removed,
        _the_card_expires_before_the_booking,
        _the_psp_does_not_know_the_card,
        has_20_open_agreements,
        _the_card_had_to_go,
        _an_agreement_of_the_card_cannot_be_decoded,
        _another_guest_is_merged_into_the_guest,
        _the_link_is_a_day_old,
    ],
)
def test_the_guest_must_type_a_card_if_the_offered_card_became_unusable(
    installation: Installation, happens: Callable[[Installation, Account], None]
) -> None:
    account = guaranteed_card(installation)
    installation.configure(link_minutes=3 * 24 * 60)
    session = second_booking(installation, link_minutes=3 * 24 * 60)
    shown = page_content(installation, session)
    assert shown.card is not None
    assert shown.agreement is not None

    happens(installation, account)

    with pytest.raises(ClickNeeded):
        agree(installation, session, agreed=shown.agreement.digest, card=account)
    after = page_content(installation, session)
    assert after.card is None
    assert after.agreement is not None
    assert installation.session(session.token_id).status is SessionStatus.OPEN


def test_the_guest_agrees_again_if_the_bank_changed_the_card(installation: Installation) -> None:
    account = guaranteed_card(installation)
    session = second_booking(installation)
    installation.put_account(replace(account, last_four="0000"))
    with pytest.raises(ClickNeeded):
        agree(installation, session, card=account)
    card = page_content(installation, session).card
    assert card is not None
    assert card.last_four == "0000"


def test_a_guest_cannot_use_the_card_of_another_guest(installation: Installation) -> None:
    account = guaranteed_card(installation)
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    session = second_booking(installation, guest_id=OTHER_GUEST_ID)

    with pytest.raises(ClickNeeded):
        agree(installation, session, card=account)


def test_an_unauthenticated_card_is_not_offered_if_authentication_is_required(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    installation.put_account(replace(account, authenticated=False))
    session = second_booking(installation, authentication="required")
    assert page_content(installation, session).card is None

    installation.put_account(replace(account, authenticated=True))
    assert page_content(installation, session).card is not None


def test_a_card_whose_funding_the_center_refuses_is_not_offered(installation: Installation) -> None:
    account = guaranteed_card(installation)
    installation.put_account(replace(account, funding=Funding.PREPAID))
    installation.configure(refuse_funding=frozenset({Funding.PREPAID}))
    assert page_content(installation, second_booking(installation)).card is None


def test_the_page_offers_the_default_card_of_the_guest_first(installation: Installation) -> None:
    installation.stored_card(OTHER_GOOD_CARD)
    guaranteed(installation)
    first, second = installation.accounts()
    session = second_booking(installation)
    assert page_content(installation, session).card == first

    # The other card may have been offered before the default changed.
    agree(installation, session, card=second)
    assert installation.session(session.token_id).account_id == second.account_id


def test_the_guest_may_type_another_card_instead_of_using_the_card_on_file(
    installation: Installation,
) -> None:
    guaranteed(installation)
    session = second_booking(installation)
    found = installation.container.find_page_content()(key=session.link_key, another_card=True)
    assert found is not None
    assert found.card is None
    agree(installation, session)
    installation.type_card_and_return(session, OTHER_GOOD_CARD)
    _, typed = installation.accounts()
    assert installation.session(session.token_id).account_id == typed.account_id


@pytest.mark.parametrize("types_first", [False, True])
def test_agreeing_by_click_uses_the_card_on_file_unless_another_card_was_typed_before(
    installation: Installation, *, types_first: bool
) -> None:
    account = guaranteed_card(installation)
    session = second_booking(installation)
    shown = agreement_on_page(installation, session)
    agree(installation, session)
    page = installation.page_reference(session)
    if types_first:
        # cardonfile asks the PSP about the typed card before it applies the click.
        installation.type_card(session, OTHER_GOOD_CARD)
        installation.clock.advance(timedelta(seconds=3))
    another = "another-browser-of-the-guest"
    agree(installation, session, agreed=shown.digest, card=account, browser=another)
    used = installation.session(session.token_id).account_id
    assert (used == account.account_id) is not types_first
    installation.reconcile()

    assert installation.psp.page(page).is_over
    assert installation.tokens_at_psp() == {each.token for each in installation.accounts()}


def test_the_card_on_file_cannot_be_used_through_a_cancelled_link(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    session = second_booking(installation)
    installation.cancel_session(session)
    with pytest.raises(LinkCancelled):
        agree(installation, session, card=account)


@pytest.mark.parametrize("opens_another_page", [False, True])
def test_a_card_that_the_psp_reports_late_is_discarded_if_the_guest_used_the_card_on_file(
    installation: Installation, *, opens_another_page: bool
) -> None:
    """At first the PSP does not find the page. Later its webhook reports a card."""
    guaranteed(installation)
    receive_webhooks(installation)
    (account,) = installation.accounts()
    session = second_booking(installation)
    agree(installation, session)
    installation.type_card(session, OTHER_GOOD_CARD)
    page_is_over(installation, session)
    if opens_another_page:
        agree(installation, session)
    receive_webhooks(installation)
    if opens_another_page:
        page_is_over(installation, session)

    agree(installation, session, card=account)
    installation.reconcile()

    assert installation.tokens_at_psp() == {account.token}


def page_is_over(installation: Installation, session: CardSession) -> None:
    stored = installation.session(session.token_id)
    installation.put_session(stored.without_card(installation.clock.now()))


def receive_webhooks(installation: Installation) -> None:
    """Receive every webhook that the PSP has to send."""
    installation.clock.advance(timedelta(minutes=2))
    now = installation.clock.now()
    while event := installation.psp.take_due_event(now, until=now + timedelta(minutes=1)):
        installation.receive_webhook(installation.webhook(event.body))


def test_a_guest_with_too_many_refused_cards_may_still_use_the_card_on_file(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    installation.configure(card_testing_limits="guest=off/1")
    installation.session_with_card(DECLINED_CARD)
    installation.reconcile()
    session = second_booking(installation)
    with pytest.raises(ClickNeeded):
        installation.open_page(session)
    agree(installation, session, card=account)
    assert installation.session(session.token_id).account_id == account.account_id
