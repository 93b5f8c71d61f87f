"""Rules of the session entity."""

from __future__ import annotations

from dataclasses import fields, replace
from datetime import timedelta
from typing import Final

import pytest

from adapters.psp_suite.samples import NOW
from domain.errors import RedirectUriInvalid
from domain.identifiers import GuestReference
from domain.psps.hosted_page import HostedPageRequest, PageAttempt
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ANSWERED_WITHIN
from domain.sessions.session import CLEARED_BY_ERASURE, CLEARED_WHEN_OVER, CardSession, Replacement
from tests.builders import a_page, a_session, an_account, an_attempt, terms_of_a_booking

TELLS_WHAT_HAPPENED: Final = {
    *("token_id", "guest_id", "center_id", "caller", "source", "configuration", "link_minutes"),
    *("locale", "status", "progress", "account_id", "existing_account_id", "failure"),
    *("shows_guest", "cancelled_by", "card"),
    *("created_at", "expires_at", "due_at", "unanswered_since", "ended_at", "cancelled_at"),
    *("ask_again_at", "opened_at", "returned_at", "authentication", "not_accepted", "trace"),
    "unopened_at",
}
NEEDED_OF_A_REQUEST: Final = {
    *("token_id", "attempt", "merchant_account", "guest_id", "guest_reference", "center_id"),
    *("center_name", "avs", "return_uri", "cancel_uri", "redirect_origin", "consent", "begun_at"),
    *("live_until", "color", "logo_uri", "refuse_funding", "authentication"),
}


def test_every_field_of_a_session_is_listed_as_kept_or_cleared_by_an_erasure() -> None:
    """Add each new field to one of these sets. `blank_unreadable` clears the same fields."""
    session = a_session(
        status=SessionStatus.EXPIRED,
        reference="order 7",
        agreement=terms_of_a_booking(),
        clicks=(),
        browsers=(),
        replaces=Replacement(account_id=an_account().account_id),
        attempt=an_attempt(over=True),
    )
    blank = session.without_personal_data()

    names = {field.name for field in fields(CardSession)}
    changed = {name for name in names if getattr(session, name) != getattr(blank, name)}
    assert changed == {*CLEARED_BY_ERASURE, *CLEARED_WHEN_OVER, "attempt"}
    assert names - changed == TELLS_WHAT_HAPPENED


def test_every_field_of_a_page_request_is_listed_as_kept_or_cleared_by_an_erasure() -> None:
    request = an_attempt().request
    request = replace(
        request, guest_email="zoe@guests.example", billing_info=a_session().billing_info
    )
    blank = request.without_personal_data()

    names = {field.name for field in fields(HostedPageRequest)}
    changed = {name for name in names if getattr(request, name) != getattr(blank, name)}
    assert changed == {"guest_name", "guest_email", "billing_info"}
    assert names - changed == NEEDED_OF_A_REQUEST


def test_an_erasure_removes_the_form_fields_of_a_hosted_page() -> None:
    attempt = an_attempt(page=a_page(fields={"signed": "with the name of the guest"}), over=True)

    blank = attempt.without_personal_data()

    assert blank.page == a_page(fields={})


def test_a_session_whose_references_were_removed_names_no_guest_or_page_at_the_psp() -> None:
    request = replace(
        an_attempt().request,
        guest_reference=GuestReference("guest-at-psp"),
        redirect_origin="https://shop.example",
    )
    blank = a_session(attempt=an_attempt(request=request)).without_references()

    unnamed = replace(request, guest_reference=None, redirect_origin="")
    assert blank == a_session(attempt=PageAttempt(request=unnamed, over=True))


def test_a_return_that_is_too_soon_for_another_call_makes_the_session_due_once() -> None:
    session = a_session(ask_again_at=NOW)

    later = session.asked_later()

    assert later == replace(session, due_at=NOW, ask_again_at=NOW + ANSWERED_WITHIN)
    assert later.asked_later() == later


@pytest.mark.parametrize(
    ("ended", "status"),
    [
        (a_session().completed(an_account().account_id, NOW), SessionStatus.COMPLETED),
        (a_session().failed(RedirectUriInvalid(), NOW), SessionStatus.FAILED),
        (a_session(expires_at=NOW).without_card(NOW), SessionStatus.EXPIRED),
    ],
)
def test_an_ended_session_is_not_due(ended: CardSession, status: SessionStatus) -> None:
    assert (ended.status, ended.ended_at, ended.due_at) == (status, NOW, None)


def test_a_returning_browser_does_not_make_a_settled_session_due() -> None:
    settled = a_session(status=SessionStatus.FAILED, due_at=None, ask_again_at=NOW)

    assert settled.asked_later() == settled


# Shows F40.
def test_an_expired_session_stays_expired_if_the_clock_is_set_back() -> None:
    expired = a_session(status=SessionStatus.EXPIRED)

    assert expired.is_past_end(expired.expires_at - timedelta(minutes=20))


def test_the_psp_is_asked_minutes_later_about_a_page_still_pending_after_its_end() -> None:
    page = replace(a_page(), ends_at=NOW + timedelta(minutes=30))
    session = a_session(attempt=an_attempt(page=page), expires_at=NOW + timedelta(days=3))
    now = NOW + timedelta(hours=5)

    due_at = session.still_pending(now).due_at

    assert due_at is not None
    assert now < due_at <= now + timedelta(minutes=10)
