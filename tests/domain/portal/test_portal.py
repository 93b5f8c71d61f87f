"""The guest's own page: the links to it, what it shows, and what guests can change."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from adapters.psp_suite.samples import GUEST_ID, OTHER_GUEST_ID
from domain.access.token import hash_of
from domain.agreements.agreement import EndOfAgreement
from domain.cards.account import Account
from domain.centers.payment_configuration import CardsPerGuest, GuestRemoval
from domain.errors import (
    GuestIdNotUsable,
    GuestNotFound,
    InvalidCenterId,
    InvalidField,
    PaymentAccountNotFound,
    PaymentConfigurationNotDone,
    PortalLimitReached,
    UserNotAuthorized,
)
from domain.events.event import Event, EventType
from domain.hosted_payments.link import ClickNeeded
from domain.identifiers import CenterId, find_link_key
from domain.permissions import Caller, Permission
from domain.portal.change_card import CardChange
from domain.portal.find_portal import PortalEnded, PortalExpired, PortalUnknown
from domain.portal.portal_session import KEPT_FOR, MAX_PORTAL_SESSIONS, MAX_VISITS, VISIT_LIFETIME
from domain.portal.queries import Portal, PortalCard, Replacing
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_guest
from tests.databases import committed
from tests.domain.agreements.bookings import (
    DAY,
    a_booking,
    agree,
    agreements,
    end,
    guaranteed,
    guaranteed_card,
    page_content,
    second_booking,
    started,
    takes_agreements,
)
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, PREPAID_CARD, Installation

HOME = "https://shop.example/account"


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    """An installation whose center takes agreements, with an endpoint for events."""
    installation = Installation(tmp_path)
    takes_agreements(installation)
    installation.has_endpoint()
    yield installation
    installation.close()


def opened(it: Installation, caller: Caller | None = None, **changes: Any) -> str:
    """Return the secret of a new link."""
    wanted = {"guest_id": GUEST_ID, "center_id": CENTER_ID, "return_uri": HOME, "locale": None}
    wanted["access_token"] = it.token_for(it.caller)
    return str(it.container.open_portal()(caller or it.caller, **wanted | changes).secret)


def entered(it: Installation, **changes: Any) -> str:
    """Wait a second, enter the page, and return the cookie of the browser."""
    it.clock.advance(timedelta(seconds=1))
    return it.container.enter_portal()(opened(it, **changes))


def page_of(it: Installation, cookie: str) -> Portal:
    return it.container.read_portal()(cookie, ())


def only_card(it: Installation, cookie: str) -> PortalCard:
    (card,) = page_of(it, cookie).cards
    return card


def change(it: Installation, cookie: str, account: Account, how: CardChange) -> Account | None:
    return it.container.change_card()(cookie, account.account_id, how)


def told(it: Installation, *types: EventType) -> list[Event]:
    """Return the events of these types, oldest first."""
    return [each.event for each in reversed(it.deliveries()) if each.event.type in types]


def noted(it: Installation) -> list[tuple[str, str, str]]:
    with it.storage.read() as unit:
        entries = unit.audit_trail.latest(by="guest")
    return [(each.actor, each.action, each.about) for each in entries]


def replacing(it: Installation, cookie: str, account: Account) -> CardSession:
    """Wait a second, and return a new session that replaces the card."""
    it.clock.advance(timedelta(seconds=1))
    key = find_link_key(
        it.container.replace_card()(cookie, account.account_id).partition("key=")[2]
    )
    assert key is not None
    with it.storage.read() as unit:
        session = unit.sessions.with_link_key(key)
    assert session is not None
    return session


def finish(it: Installation, session: CardSession, number: str = OTHER_GOOD_CARD) -> CardSession:
    """Open the session's link, agree to a booking if there is one, type a card and return."""
    if session.agreement is None:
        it.open_page(session)
    else:
        agree(it, session)
    it.type_card(session, number)
    it.return_to_shop(session)
    return it.session(session.token_id)


def kept_until(it: Installation, account: Account) -> datetime:
    return max(each.kept_until for each in agreements(it, account))


def test_the_portal_shows_only_the_guests_cards_at_that_center(installation: Installation) -> None:
    installation.has_other_center()
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    account = installation.stored_card()
    installation.stored_card(OTHER_GOOD_CARD, center_id=OTHER_CENTER_ID)
    installation.stored_card(guest_id=OTHER_GUEST_ID)

    page = page_of(installation, entered(installation))

    assert [each.account for each in page.cards] == [account]
    assert (page.center_name, page.return_uri, page.language) == ("Harbor Spa", HOME, "en")
    (card,) = page.cards
    assert card.general is not None
    assert card.general.text == installation.consents(account)[0].text
    assert (card.running, card.stays_until, card.may_be_replaced) == ([], None, True)


@pytest.mark.parametrize(
    ("locale", "accepted", "language"),
    [("de-AT", ["fr"], "de"), ("auto", ["fr"], "fr"), (None, ["fr"], "en")],
)
def test_the_portal_is_in_the_requested_language(
    installation: Installation, locale: str | None, accepted: list[str], language: str
) -> None:
    secret = opened(installation, locale=locale)

    assert installation.container.read_portal_link()(secret, accepted).language == language


def test_only_hashes_of_the_secrets_of_a_portal_link_are_stored(installation: Installation) -> None:
    secret = opened(installation)
    cookie = installation.container.enter_portal()(secret)

    with installation.storage.read() as unit:
        (session,) = unit.portal_sessions.of(GUEST_ID)
        (entry,) = unit.audit_trail.latest(about=GUEST_ID)
    assert (entry.action, entry.actor) == ("portal.opened", "caller:web-shop")
    assert session.secret_hash == hash_of(secret)
    (visit,) = session.visits
    assert cookie == f"{session.portal_id}.{cookie.partition('.')[2]}"
    assert visit.secret_hash == hash_of(cookie.partition(".")[2])
    with pytest.raises(PortalUnknown):
        installation.container.enter_portal()(session.secret_hash)
    with pytest.raises(PortalEnded):
        page_of(installation, f"{session.portal_id}.{visit.secret_hash}")


@pytest.mark.parametrize("cookie", ["", "x", ".", "'.'", "\ud800.\ud800"])
def test_a_forged_cookie_does_not_open_the_portal(installation: Installation, cookie: str) -> None:
    with pytest.raises(PortalEnded):
        page_of(installation, cookie)


@pytest.mark.parametrize(("settings", "minutes"), [({}, 15), ({"portal_minutes": 45}, 45)])
def test_a_portal_link_works_repeatedly_until_it_expires(
    installation: Installation, settings: dict[str, Any], minutes: int
) -> None:
    installation.configure(**settings)
    secret = opened(installation)
    enter, read = installation.container.enter_portal(), installation.container.read_portal_link()
    first = enter(secret)
    installation.clock.advance(timedelta(minutes=minutes, seconds=-1))
    assert page_of(installation, enter(secret)) == page_of(installation, first)

    installation.clock.advance(timedelta(seconds=1))

    with pytest.raises(PortalExpired):
        enter(secret)
    with pytest.raises(PortalExpired):
        read(secret, ())
    assert page_of(installation, first).cards == []


def test_a_visit_to_the_portal_lasts_an_hour(installation: Installation) -> None:
    cookie = entered(installation)
    installation.clock.advance(VISIT_LIFETIME - timedelta(seconds=1))
    page_of(installation, cookie)

    installation.clock.advance(timedelta(seconds=1))

    with pytest.raises(PortalEnded):
        page_of(installation, cookie)


def test_a_portal_link_remembers_the_last_20_browsers(installation: Installation) -> None:
    secret = opened(installation)
    first, *_, last = (installation.container.enter_portal()(secret) for _ in range(MAX_VISITS + 1))

    page_of(installation, last)
    with pytest.raises(PortalEnded):
        page_of(installation, first)


def test_a_guest_gets_at_most_20_portal_links_per_center_and_day(
    installation: Installation,
) -> None:
    installation.has_other_center()
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    for _ in range(MAX_PORTAL_SESSIONS):
        opened(installation)

    with pytest.raises(PortalLimitReached) as refused:
        opened(installation)
    assert refused.value.retry_after_seconds == DAY.total_seconds()
    opened(installation, guest_id=OTHER_GUEST_ID)
    opened(installation, center_id=OTHER_CENTER_ID)
    installation.clock.advance(DAY)
    opened(installation)


@pytest.mark.parametrize(
    ("changes", "refusal"),
    [
        ({"center_id": "x"}, InvalidCenterId),
        ({"center_id": OTHER_CENTER_ID}, InvalidCenterId),
        ({"return_uri": None}, InvalidField),
        ({"return_uri": "https://evil.example/"}, InvalidField),
        ({"return_uri": "javascript:alert(1)"}, InvalidField),
        ({"locale": "?"}, InvalidField),
        ({"guest_id": "x"}, GuestIdNotUsable),
        ({"guest_id": OTHER_GUEST_ID}, GuestNotFound),
    ],
)
def test_an_invalid_request_for_a_portal_link_is_refused(
    installation: Installation, changes: dict[str, Any], refusal: type[Exception]
) -> None:
    installation.configure(redirect_origins=("https://shop.example",))
    with pytest.raises(refusal):
        opened(installation, **changes)
    with installation.storage.read() as unit:
        assert list(unit.portal_sessions.of(GUEST_ID)) == []


def test_a_caller_limited_to_another_center_cannot_get_a_portal_link(
    installation: Installation,
) -> None:
    elsewhere = frozenset[CenterId]({OTHER_CENTER_ID})
    with pytest.raises(UserNotAuthorized):
        opened(installation, installation.a_caller(Permission.GUESTS_PORTAL, centers=elsewhere))


def test_a_guest_can_remove_a_card(installation: Installation) -> None:
    account = installation.stored_card()
    other = installation.stored_card(OTHER_GOOD_CARD)
    cookie = entered(installation)

    changed = change(installation, cookie, account, CardChange.REMOVE)

    assert changed is not None
    assert changed.removed_at == installation.clock.now()
    assert installation.accounts() == (replace(other, is_default=True),)
    (event,) = told(installation, EventType.ACCOUNT_REMOVED)
    assert (event.account_id, event.by, event.reason) == (account.account_id, "guest", None)
    assert noted(installation) == [("guest", "card.removed", account.account_id)]
    installation.reconcile()
    assert installation.tokens_at_psp() == {other.token}
    # A form that is sent twice is harmless.
    assert change(installation, cookie, account, CardChange.REMOVE) is None
    assert len(told(installation, EventType.ACCOUNT_REMOVED)) == 1


def test_a_card_that_the_guest_removes_is_kept_for_its_booking(installation: Installation) -> None:
    account = guaranteed_card(installation, keeps=True)
    cookie = entered(installation)
    until = kept_until(installation, account)
    assert only_card(installation, cookie).stays_until == until

    changed = change(installation, cookie, account, CardChange.REMOVE)

    (stays,) = installation.accounts()
    assert changed == stays
    assert (stays.keep_until, stays.withdrawn_at) == (until, installation.clock.now())
    read = installation.use_cases.read_account(
        installation.caller, guest_id=GUEST_ID, account_id=stays.account_id
    )
    assert [each.kept_until for each in read.agreements] == [until]
    (event,) = told(installation, EventType.CONSENT_WITHDRAWN)
    assert (event.account_id, event.by, event.status) == (account.account_id, "guest", "active")
    assert noted(installation) == [("guest", "consent.withdrawn", account.account_id)]
    evidence = installation.container.read_evidence()(
        installation.caller, guest_id=GUEST_ID, account_id=account.account_id
    )
    assert evidence.document.card.withdrawn is not None
    card = only_card(installation, cookie)
    assert (card.general, card.account.keep_until) == (None, until)
    assert change(installation, cookie, account, CardChange.REMOVE) is None
    installation.clock.advance(until - installation.clock.now() + timedelta(seconds=1))
    installation.container.remove_ended_cards()()
    assert installation.accounts() == ()


@pytest.mark.parametrize(
    ("how", "removal", "has_texts", "stays"),
    [
        (CardChange.REMOVE, None, True, True),
        (CardChange.REMOVE, None, False, False),
        (CardChange.REMOVE, GuestRemoval.ALWAYS, True, False),
        (CardChange.REMOVE, GuestRemoval.AFTER_AGREEMENT, False, True),
        (CardChange.WITHDRAW, GuestRemoval.ALWAYS, True, True),
        (CardChange.WITHDRAW, GuestRemoval.AFTER_AGREEMENT, True, True),
    ],
)
def test_the_center_sets_whether_removing_a_card_ends_the_guarantee_of_a_booking(
    installation: Installation,
    how: CardChange,
    removal: GuestRemoval | None,
    has_texts: bool,
    stays: bool,
) -> None:
    account = guaranteed_card(installation, keeps=True)
    installation.configure(guest_removal=removal)
    if not has_texts:
        installation.container.set_reservation_text()(CENTER_ID, "en", off=True)

    change(installation, entered(installation), account, how)

    left = [each.keep_until for each in installation.accounts()]
    assert left == ([kept_until(installation, account)] if stays else [])


def with_two_bookings(installation: Installation) -> Account:
    """Return a card that guarantees two bookings. The second booking is later."""
    account = guaranteed_card(installation, keeps=True)
    installation.clock.advance(timedelta(seconds=1))
    agree(installation, second_booking(installation), card=account)
    return account


def test_a_removed_card_is_kept_for_the_bookings_that_the_portal_showed(
    installation: Installation,
) -> None:
    account = with_two_bookings(installation)
    first, second = agreements(installation, account)
    # The shop cancels the second booking. Its grace period ends after that of the first booking.
    installation.clock.advance(first.terms.ends_at - installation.clock.now() + DAY)
    end(installation, second)
    cookie = entered(installation)
    card = only_card(installation, cookie)
    (shown,) = card.running
    assert (shown.agreement_id, shown.token_id) == (first.agreement_id, first.token_id)
    assert "2 × massage" in shown.shown.text
    assert (card.stays_until, card.withdrawn_until) == (first.kept_until, first.kept_until)

    change(installation, cookie, account, CardChange.REMOVE)

    (stays,) = installation.accounts()
    assert stays.keep_until == first.kept_until


@pytest.mark.parametrize("is_over", [False, True])
def test_a_removed_card_is_deleted_after_the_shop_has_ended_all_bookings_of_the_card(
    installation: Installation, is_over: bool
) -> None:
    account = with_two_bookings(installation)
    first, second = agreements(installation, account)
    change(installation, entered(installation), account, CardChange.REMOVE)

    end(installation, second)

    (stays,) = installation.accounts()
    assert stays.keep_until == first.kept_until
    if is_over:
        installation.clock.advance(first.terms.ends_at - installation.clock.now() + DAY)
        installation.container.end_agreements()()
        installation.container.remove_ended_cards()()
        assert installation.accounts() == (stays,)
    end(installation, first, "no_show_charged")
    installation.clock.advance(timedelta(seconds=1))
    installation.container.remove_ended_cards()()
    assert installation.accounts() == ()


def test_a_card_whose_agreement_has_ended_is_removed_at_once(installation: Installation) -> None:
    account = guaranteed_card(installation)
    (agreement,) = agreements(installation, account)
    end(installation, agreement)

    change(installation, entered(installation), account, CardChange.REMOVE)

    assert installation.accounts() == ()


@pytest.mark.parametrize("keeps", [True, False])
def test_a_removed_card_that_still_guarantees_a_booking_is_not_offered_for_another(
    installation: Installation, keeps: bool
) -> None:
    account = guaranteed_card(installation, keeps=keeps)
    other = second_booking(installation)
    assert page_content(installation, other).card == account

    change(installation, entered(installation), account, CardChange.REMOVE)

    assert page_content(installation, other).card is None
    (stays,) = installation.accounts()
    with pytest.raises(ClickNeeded):
        agree(installation, other, card=stays)


def test_a_card_typed_before_consent_was_withdrawn_does_not_restore_the_consent(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation, keeps=True)
    late = installation.session_with_card(expiry=(9, 2032))
    change(installation, entered(installation), account, CardChange.WITHDRAW)
    (withdrawn,) = installation.accounts()

    installation.return_to_shop(late)

    (renewed,) = installation.accounts()
    assert (renewed.expiry_year, renewed.keep_until) == (2032, withdrawn.keep_until)
    assert renewed.consent_version == withdrawn.consent_version


@pytest.mark.parametrize("how", [CardChange.REMOVE, CardChange.WITHDRAW])
def test_a_card_that_the_guest_removed_after_typing_it_again_is_not_stored_again(
    installation: Installation, how: CardChange
) -> None:
    account = installation.stored_card()
    late = installation.session_with_card(expiry=(9, 2032))
    change(installation, entered(installation), account, how)

    installation.return_to_shop(late)

    assert installation.accounts() == ()
    assert installation.session(late.token_id).status is SessionStatus.OPEN
    installation.reconcile()
    assert installation.tokens_at_psp() == set()
    installation.clock.advance(timedelta(seconds=1))
    installation.open_page(late)
    installation.type_card_and_return(late)
    (again,) = installation.accounts()
    assert (again.keep_until, again.withdrawn_at) == (None, None)


def test_a_card_removed_while_a_booking_that_it_was_typed_for_is_unsettled_is_kept_for_the_booking(
    installation: Installation,
) -> None:
    account = installation.stored_card()
    late = second_booking(installation)
    agree(installation, late, keeps=True)
    installation.type_card(late)
    change(installation, entered(installation), account, CardChange.REMOVE)
    removed_at = installation.clock.now()

    installation.return_to_shop(late)

    (stays,) = installation.accounts()
    until = kept_until(installation, stays)
    assert (stays.keep_until, stays.withdrawn_at) == (until, removed_at)


def test_a_card_typed_before_the_shop_removed_it_is_stored(installation: Installation) -> None:
    account = installation.stored_card()
    late = installation.session_with_card(expiry=(9, 2032))
    installation.clock.advance(timedelta(seconds=1))
    installation.remove_card(account)

    installation.return_to_shop(late)

    assert len(installation.accounts()) == 1


def test_a_guest_who_withdrew_consent_can_give_it_again(installation: Installation) -> None:
    account = guaranteed_card(installation, keeps=True)
    change(installation, entered(installation), account, CardChange.WITHDRAW)
    installation.clock.advance(timedelta(seconds=1))
    session = second_booking(installation)

    agree(installation, session, keeps=True)
    installation.type_card_and_return(session, GOOD_CARD)

    (kept,) = installation.accounts()
    assert kept.keep_until is None
    assert only_card(installation, entered(installation)).general is not None


def merged(it: Installation) -> Account:
    """Merge another guest who has the same card into the guest. Return the card."""
    it.clock.advance(timedelta(seconds=1))
    it.merge_guests(OTHER_GUEST_ID, into=GUEST_ID)
    (account,) = it.accounts()
    # Links that were made up to the instant of the merge have ended, so time must pass.
    it.clock.advance(timedelta(minutes=30))
    return account


@pytest.mark.parametrize("is_later", [False, True])
def test_merging_guests_overrides_a_withdrawn_consent_only_by_a_later_consent(
    installation: Installation, is_later: bool
) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    if not is_later:
        installation.stored_card(guest_id=OTHER_GUEST_ID)
        installation.clock.advance(DAY)
    account = guaranteed_card(installation, keeps=True)
    change(installation, entered(installation), account, CardChange.WITHDRAW)
    withdrawn_at = installation.clock.now()
    installation.clock.advance(timedelta(seconds=1))
    if is_later:
        installation.stored_card(guest_id=OTHER_GUEST_ID)

    joined = merged(installation)

    until = None if is_later else kept_until(installation, joined)
    assert (joined.keep_until, joined.withdrawn_at) == (until, withdrawn_at)
    general = only_card(installation, entered(installation)).general
    assert (general is not None) is is_later
    assert general is None or general.agreed_at > withdrawn_at


def test_a_withdrawn_consent_still_applies_after_a_merge(installation: Installation) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    account = guaranteed_card(installation, keeps=True)
    installation.clock.advance(timedelta(seconds=1))
    installation.stored_card(guest_id=OTHER_GUEST_ID)
    cookie = entered(installation)
    change(installation, cookie, account, CardChange.WITHDRAW)
    withdrawn_at = installation.clock.now()

    joined = merged(installation)

    assert joined.account_id != account.account_id
    until = kept_until(installation, joined)
    assert (joined.keep_until, joined.withdrawn_at) == (until, withdrawn_at)
    assert joined.consent_version == agreements(installation, joined)[0].shown.version


def test_a_guest_can_make_a_card_the_default(installation: Installation) -> None:
    installation.stored_card()
    installation.clock.advance(timedelta(seconds=1))
    other = installation.stored_card(OTHER_GOOD_CARD)
    cookie = entered(installation)

    for _ in range(2):
        change(installation, cookie, other, CardChange.DEFAULT)

    assert [each.is_default for each in installation.accounts()] == [False, True]
    (event,) = told(installation, EventType.ACCOUNT_DEFAULT)
    assert (event.account_id, event.by) == (other.account_id, "guest")


@pytest.mark.parametrize("how", CardChange)
def test_a_guest_cannot_change_cards_of_other_guests_or_at_other_centers(
    installation: Installation, how: CardChange
) -> None:
    installation.has_other_center()
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    others = installation.stored_card(guest_id=OTHER_GUEST_ID)
    elsewhere = installation.stored_card(OTHER_GOOD_CARD, center_id=OTHER_CENTER_ID)
    cookie = entered(installation)

    for account in (others, elsewhere):
        assert change(installation, cookie, account, how) is None
        with pytest.raises(PaymentAccountNotFound):
            installation.container.replace_card()(cookie, account.account_id)
        assert installation.account(account.account_id) == account


def test_a_replaced_card_is_removed_after_the_new_card_is_stored(
    installation: Installation,
) -> None:
    installation.configure(cards_per_guest=CardsPerGuest.ONE)
    account = installation.stored_card()
    cookie = entered(installation)
    session = replacing(installation, cookie, account)
    assert session.redirect_uri.endswith("/hosted-payments/portal")
    installation.open_page(session)
    installation.type_card(session, OTHER_GOOD_CARD)
    assert installation.accounts() == (account,)

    installation.return_to_shop(session)

    (new,) = installation.accounts()
    assert (new.last_four, new.is_default, new.keep_until) == ("4444", True, None)
    assert page_of(installation, cookie).replacing is Replacing.REPLACED
    (event,) = told(installation, EventType.ACCOUNT_REMOVED)
    assert (event.account_id, event.by, event.reason) == (account.account_id, "guest", "replaced")
    assert noted(installation) == [("guest", "card.removed", account.account_id)]
    change(installation, cookie, new, CardChange.REMOVE)
    assert page_of(installation, cookie).replacing is None


def test_a_guest_who_replaces_a_card_must_agree_to_its_bookings_again(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    installation.clock.advance(timedelta(seconds=1))
    agree(installation, second_booking(installation), card=account)
    former = agreements(installation, account)
    cookie = entered(installation)
    session = replacing(installation, cookie, account)
    page = page_content(installation, session)
    assert page.replaces == installation.account(account.account_id)
    shown = page.agreement
    assert shown is not None
    assert shown.texts == [each.shown.text for each in former]

    finish(installation, session)

    (new,) = installation.accounts()
    again = sorted(agreements(installation, new), key=lambda each: each.terms.reference)
    assert [each.terms.reference for each in again] == ["booking-17", "booking-18"]
    assert [each.terms.replaces for each in again] == [each.agreement_id for each in former]
    assert new.keep_until == max(each.kept_until for each in former)
    assert [each.reason for each in agreements(installation, account)] == (
        [EndOfAgreement.REPLACED] * 2
    )
    assert installation.account(account.account_id).removed_at is not None
    added = told(installation, EventType.AGREEMENT_ADDED)
    ids = [account.account_id, new.account_id] * 2
    assert sorted(str(each.account_id) for each in added) == sorted(ids)


def test_the_replacement_of_the_default_card_becomes_the_default(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    for number in (OTHER_GOOD_CARD, PREPAID_CARD):
        installation.clock.advance(timedelta(seconds=1))
        installation.stored_card(number)

    finish(installation, replacing(installation, entered(installation), account), OTHER_GOOD_CARD)

    cards = [(each.last_four, each.is_default) for each in installation.accounts()]
    assert cards == [("4444", True), (PREPAID_CARD[-4:], False)]


def test_a_booking_is_guaranteed_by_the_replacement_of_its_card(installation: Installation) -> None:
    booking = a_booking(installation)
    booked = guaranteed(installation, agreement=booking)
    (account,) = installation.accounts()
    finish(installation, replacing(installation, entered(installation), account))

    again = started(installation, agreement=booking)

    assert again.token_id == booked.token_id


def test_replacing_a_card_fails_if_its_agreement_ends_meanwhile(installation: Installation) -> None:
    account = guaranteed_card(installation)
    (agreement,) = agreements(installation, account)
    cookie = entered(installation)
    session = replacing(installation, cookie, account)
    agree(installation, session)
    installation.type_card(session, OTHER_GOOD_CARD)
    end(installation, agreement)

    installation.return_to_shop(session)

    settled = installation.session(session.token_id)
    assert settled.status is SessionStatus.FAILED
    assert settled.failure is not None
    assert settled.failure.type == "agreement_ended"
    (still,) = installation.accounts()
    assert still.account_id == account.account_id
    assert page_of(installation, cookie).replacing is Replacing.FAILED


def test_the_portal_shows_no_failure_if_another_visit_has_already_replaced_the_card(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    first = replacing(installation, entered(installation), account)
    cookie = entered(installation)
    second = replacing(installation, cookie, account)
    finish(installation, first)

    assert finish(installation, second, PREPAID_CARD).failure is not None
    assert page_of(installation, cookie).replacing is None


def test_replacing_a_card_by_typing_the_same_card_keeps_its_account(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation)
    cookie = entered(installation)
    session = replacing(installation, cookie, account)

    finish(installation, session, GOOD_CARD)

    assert page_of(installation, cookie).replacing is Replacing.ON_FILE
    (same,) = installation.accounts()
    assert same.account_id == account.account_id
    assert [each.reason for each in agreements(installation, same)] == [
        EndOfAgreement.REPLACED,
        None,
    ]


@pytest.mark.parametrize("number", [GOOD_CARD, OTHER_GOOD_CARD])
def test_a_card_without_a_booking_is_not_replaced_by_a_card_that_is_already_on_file(
    installation: Installation, number: str
) -> None:
    account, other = installation.stored_card(), installation.stored_card(OTHER_GOOD_CARD)
    cookie = entered(installation)

    finish(installation, replacing(installation, cookie, account), number)

    assert page_of(installation, cookie).replacing is Replacing.ON_FILE
    change(installation, cookie, other, CardChange.REMOVE)
    is_same = number == GOOD_CARD
    assert page_of(installation, cookie).replacing is (
        Replacing.ON_FILE if is_same else Replacing.FAILED
    )
    change(installation, cookie, account, CardChange.REMOVE)
    assert page_of(installation, cookie).replacing is None


def test_a_replaced_card_is_kept_for_a_past_booking_that_may_still_be_charged(
    installation: Installation,
) -> None:
    account = guaranteed_card(installation, keeps=True)
    (agreement,) = agreements(installation, account)
    installation.clock.advance(agreement.terms.ends_at - installation.clock.now() + DAY)
    cookie = entered(installation)
    session = replacing(installation, cookie, account)
    assert session.agreement is None

    finish(installation, session)

    assert page_of(installation, cookie).replacing is None
    former, new = installation.accounts()
    assert (former.account_id, former.keep_until) == (account.account_id, agreement.kept_until)
    assert (former.is_default, new.is_default) == (False, True)


@pytest.mark.parametrize("removal", GuestRemoval)
def test_a_replaced_card_is_kept_for_a_booking_that_was_added_during_the_replacement(
    installation: Installation, removal: GuestRemoval
) -> None:
    installation.configure(guest_removal=removal)
    account = installation.stored_card()
    session = replacing(installation, entered(installation), account)
    agree(installation, second_booking(installation), card=account)

    finish(installation, session)

    assert noted(installation) == [("guest", "consent.withdrawn", account.account_id)]
    former, new = installation.accounts()
    assert (former.account_id, former.keep_until) == (
        account.account_id,
        kept_until(installation, account),
    )
    assert (new.last_four, new.is_default, new.keep_until) == ("4444", True, None)


def test_a_card_with_only_past_bookings_cannot_be_replaced(installation: Installation) -> None:
    account = guaranteed_card(installation)
    (agreement,) = agreements(installation, account)
    installation.clock.advance(agreement.terms.ends_at - installation.clock.now())
    cookie = entered(installation)

    assert only_card(installation, cookie).may_be_replaced is False
    with pytest.raises(PaymentAccountNotFound):
        installation.container.replace_card()(cookie, account.account_id)


def test_cards_cannot_be_replaced_if_the_center_does_not_take_cards(
    installation: Installation,
) -> None:
    account = installation.stored_card()
    cookie = entered(installation)
    installation.unconfigure()

    assert only_card(installation, cookie).may_be_replaced is False
    with pytest.raises(PaymentConfigurationNotDone):
        installation.container.replace_card()(cookie, account.account_id)
    change(installation, cookie, account, CardChange.REMOVE)
    assert installation.accounts() == ()


def test_an_erasure_ends_every_portal_link_and_visit(installation: Installation) -> None:
    account = installation.stored_card()
    secret = opened(installation)
    cookie = installation.container.enter_portal()(secret)
    with installation.storage.read() as unit:
        (session,) = unit.portal_sessions.of(GUEST_ID)

    installation.erase_guest()

    with pytest.raises(PortalUnknown):
        installation.container.enter_portal()(secret)
    with pytest.raises(PortalEnded):
        change(installation, cookie, account, CardChange.REMOVE)
    # Finishing the erasure deletes the links that an earlier release left.
    with committed(installation.storage) as writing:
        assert list(writing.portal_sessions.of(GUEST_ID)) == []
        writing.portal_sessions.add(session)
    installation.container.finish_erasures()()
    with installation.storage.read() as unit:
        assert list(unit.portal_sessions.of(GUEST_ID)) == []


def test_a_portal_link_ends_when_its_access_token_is_revoked(installation: Installation) -> None:
    token = installation.token_for(installation.caller)
    secret = opened(installation, access_token=token)
    cookie = installation.container.enter_portal()(secret)
    # A client may get a new token before the guest opens the link.
    installation.clock.advance(timedelta(minutes=1))
    assert page_of(installation, cookie).cards == []

    installation.container.revoke_token()(token)

    with pytest.raises(PortalExpired):
        installation.container.enter_portal()(secret)
    with pytest.raises(PortalEnded):
        page_of(installation, cookie)


@pytest.mark.parametrize("may_view", [True, False])
def test_the_portal_shows_the_guests_name_only_if_the_caller_may_read_guests(
    installation: Installation, may_view: bool
) -> None:
    permissions = {Permission.GUESTS_PORTAL, *([Permission.GUESTS_VIEW] if may_view else [])}
    cookie = entered(installation, caller=installation.a_caller(*permissions))

    assert (page_of(installation, cookie).guest is not None) == may_view


def test_pressing_the_replace_button_twice_starts_one_session(installation: Installation) -> None:
    account = installation.stored_card()
    cookie = entered(installation)

    first, again = (replacing(installation, cookie, account) for _ in range(2))

    assert first.token_id == again.token_id


def test_merging_guests_ends_the_portal_links_of_both_guests(installation: Installation) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    account = installation.stored_card(guest_id=OTHER_GUEST_ID)
    stays, goes = opened(installation), opened(installation, guest_id=OTHER_GUEST_ID)
    cookies = [installation.container.enter_portal()(each) for each in (stays, goes)]

    installation.merge_guests(OTHER_GUEST_ID)

    for secret, error in ((stays, PortalExpired), (goes, PortalUnknown)):
        with pytest.raises(error):
            installation.container.enter_portal()(secret)
    for cookie in cookies:
        with pytest.raises(PortalEnded):
            change(installation, cookie, account, CardChange.REMOVE)
    installation.clock.advance(timedelta(seconds=1))
    assert len(page_of(installation, entered(installation)).cards) == 1


def test_portal_sessions_end_when_a_copy_of_the_installation_is_separated(
    installation: Installation,
) -> None:
    cookie = entered(installation)

    assert installation.container.separate_copy()()["portal_sessions"] == 1

    with pytest.raises(PortalEnded):
        page_of(installation, cookie)


def test_the_export_of_a_guest_contains_portal_links_without_their_secrets(
    installation: Installation,
) -> None:
    secret = opened(installation)
    cookie = installation.container.enter_portal()(secret)

    exported = json.dumps(installation.container.export_guest()(GUEST_ID), default=str)

    assert HOME in exported
    portal_id, _, own = cookie.partition(".")
    assert not any(each in exported for each in (hash_of(secret), hash_of(own), portal_id))


def test_portal_links_are_deleted_after_a_week(installation: Installation) -> None:
    secret = opened(installation)
    installation.clock.advance(KEPT_FOR)
    installation.container.forget_old_records()()
    with pytest.raises(PortalExpired):
        installation.container.enter_portal()(secret)

    installation.clock.advance(timedelta(seconds=1))
    installation.container.forget_old_records()()

    with pytest.raises(PortalUnknown):
        installation.container.enter_portal()(secret)
