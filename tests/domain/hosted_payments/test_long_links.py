"""Links that are valid for days. They open several pages, and an old link needs a click."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from domain.hosted_payments.link import ClickNeeded, LinkExpired, LinkUnknown
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ASK_AGAIN_AFTER
from domain.sessions.session import MAX_ATTEMPTS, TIME_TO_TYPE, CardSession
from tests.installation import REDIRECT_URI, Installation, Trouble

DAY = timedelta(days=1)
SECOND = timedelta(seconds=1)
MONTH_IN_MINUTES = 43_200
ADDRESS = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}


@pytest.fixture
def session(installation: Installation) -> CardSession:
    """Return a session whose link is valid for 30 days."""
    installation.configure(link_minutes=MONTH_IN_MINUTES, avs=True)
    return installation.add_card(link_minutes=MONTH_IN_MINUTES, billing_info=ADDRESS)


def click(installation: Installation, session: CardSession) -> str:
    return installation.use_cases.open_hosted_page(key=session.link_key, by_click=True)


def test_opening_a_long_lived_link_does_not_shorten_its_lifetime(
    installation: Installation, session: CardSession
) -> None:
    installation.open_page(session)

    opened = installation.session(session.token_id)
    assert opened.expires_at == session.expires_at
    assert opened.current_attempt.page is not None
    assert opened.current_attempt.page.ends_at == installation.clock.now() + DAY


def test_a_valid_link_opens_a_new_page_after_the_last_page_ended(
    installation: Installation, session: CardSession
) -> None:
    addresses = [installation.open_page(session)]
    for _ in range(3):
        installation.clock.advance(DAY + SECOND)
        addresses.append(click(installation, session))
    installation.type_card_and_return(session)

    assert len(set(addresses)) == 4
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_the_psp_is_not_called_about_an_ended_page_until_its_link_expires(
    installation: Installation, session: CardSession
) -> None:
    installation.open_page(session)
    for _ in range(5):
        installation.clock.advance(timedelta(hours=5))
        installation.reconcile()
    installation.provider.calls.clear()

    while installation.clock.now() < session.expires_at - DAY:
        installation.clock.advance(DAY)
        installation.reconcile()

    assert installation.provider.calls == []
    assert installation.session(session.token_id).status is SessionStatus.OPEN
    installation.clock.advance(DAY)
    installation.reconcile()
    assert installation.session(session.token_id).status is SessionStatus.EXPIRED


def test_a_page_that_the_psp_leaves_open_too_long_is_closed(
    installation: Installation, session: CardSession
) -> None:
    installation.open_page(session)
    opened = installation.session(session.token_id)
    attempt = opened.current_attempt
    assert attempt.page is not None
    page = replace(attempt.page, ends_at=installation.clock.now() + timedelta(minutes=3))
    installation.put_session(replace(opened, attempt=replace(attempt, page=page)))
    installation.clock.advance(timedelta(minutes=2))
    installation.reconcile()
    assert installation.session(session.token_id).due_at == page.ends_at
    installation.clock.advance(timedelta(minutes=1))

    installation.reconcile()

    assert installation.psp.page(page.reference).is_over
    assert installation.session(session.token_id).due_at == session.expires_at


def test_a_guest_is_not_sent_to_an_ended_page_while_the_psp_is_unavailable(
    installation: Installation, session: CardSession
) -> None:
    installation.open_page(session)
    installation.clock.advance(DAY + SECOND)
    installation.provider.have(Trouble.BEFORE_IT_ACTED)

    with pytest.raises(ProviderUnavailable):
        click(installation, session)


def test_opening_a_link_without_a_click_has_no_effect_if_the_link_is_older_than_a_day(
    installation: Installation, session: CardSession
) -> None:
    installation.open_page(session)
    installation.clock.advance(DAY)
    assert installation.open_page(session)
    installation.clock.advance(SECOND)
    before, calls = installation.session(session.token_id), list(installation.provider.calls)

    for _ in range(MAX_ATTEMPTS + 1):
        with pytest.raises(ClickNeeded):
            installation.open_page(session)

    assert installation.session(session.token_id) == before
    assert installation.provider.calls == calls
    assert click(installation, session)


def test_a_page_opened_from_an_old_link_checks_the_billing_address_without_showing_it(
    installation: Installation, session: CardSession
) -> None:
    installation.clock.advance(DAY - TIME_TO_TYPE)
    installation.open_page(session)
    young = installation.session(session.token_id).current_attempt.request
    installation.psp.close_page(installation.page_reference(session))
    installation.clock.advance(TIME_TO_TYPE + SECOND)

    click(installation, session)

    old = installation.session(session.token_id).current_attempt.request
    assert (young.billing_info, young.avs) == (session.billing_info, True)
    assert (old.billing_info, old.avs) == (None, True)
    assert (old.guest_name, old.guest_email) == ("", None)
    installation.type_card(session, zipcode="00000")
    assert installation.return_to_shop(session) == REDIRECT_URI
    assert installation.session(session.token_id).status is SessionStatus.OPEN
    installation.clock.advance(ASK_AGAIN_AFTER)
    installation.type_card_and_return(session)
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


# Shows S28.
def test_a_page_with_guest_details_ends_when_its_link_is_a_day_old(
    installation: Installation, session: CardSession
) -> None:
    installation.clock.advance(timedelta(hours=20))
    young = installation.open_page(session)
    shown = installation.session(session.token_id).current_attempt.request
    assert shown.guest_email
    installation.clock.advance(timedelta(hours=4) + SECOND)

    assert click(installation, session) != young
    blank = installation.session(session.token_id).current_attempt.request
    assert (blank.guest_name, blank.guest_email) == ("", None)


# Shows S28.
def test_a_page_with_guest_details_is_not_shown_after_its_link_is_a_day_old(
    installation: Installation,
) -> None:
    installation.configure(link_minutes=MONTH_IN_MINUTES)
    session = installation.session_without_answer(link_minutes=MONTH_IN_MINUTES)
    assert session.current_attempt.request.guest_email
    installation.clock.advance(timedelta(hours=25))

    with pytest.raises(ProviderUnavailable):
        click(installation, session)
    installation.clock.advance(ASK_AGAIN_AFTER)
    click(installation, session)

    shown = installation.session(session.token_id).current_attempt.request
    assert (shown.attempt, shown.guest_name, shown.guest_email) == (2, "", None)


def test_a_page_opened_when_its_link_is_almost_a_day_old_does_not_show_guest_details(
    installation: Installation, session: CardSession
) -> None:
    installation.clock.advance(timedelta(hours=23, minutes=30))
    page = installation.open_page(session)
    blank = installation.session(session.token_id).current_attempt.request
    assert (blank.guest_name, blank.guest_email, blank.billing_info) == ("", None, None)
    installation.clock.advance(timedelta(hours=20))

    assert click(installation, session) == page


@pytest.mark.parametrize("by_click", [False, True])
def test_a_link_older_than_a_day_is_refused_for_the_same_reasons_as_a_new_link(
    installation: Installation, session: CardSession, by_click: bool
) -> None:
    stored = installation.stored_card(billing_info=ADDRESS)
    installation.clock.advance(DAY + SECOND)

    def follow(key: str | None) -> str:
        return installation.use_cases.open_hosted_page(key=key, by_click=by_click)

    with pytest.raises(LinkUnknown):
        follow("a" * 26)
    assert follow(installation.session(stored.token_id).link_key) == REDIRECT_URI
    installation.clock.advance(30 * DAY)
    with pytest.raises(LinkExpired):
        follow(session.link_key)


def test_the_limit_on_pages_that_a_link_may_open_applies_to_each_day(
    installation: Installation, session: CardSession
) -> None:
    def open_until_refused() -> int:
        for number in range(MAX_ATTEMPTS * 2):
            try:
                click(installation, session)
            except LinkExpired:
                return number
            installation.psp.close_page(installation.page_reference(session))
        raise AssertionError("pages are made without end")

    assert open_until_refused() == MAX_ATTEMPTS
    installation.clock.advance(DAY + SECOND)
    assert open_until_refused() == MAX_ATTEMPTS
    # The end of the link limits its pages. The end of a page that prolonged the session does not.
    assert not session.may_have_page(30 * MAX_ATTEMPTS + 1, session.expires_at + 9 * DAY)
