"""Centers that refuse cards by funding, or refuse cards without authentication."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from adapters.psp_suite.samples import GUEST_ID
from domain.errors import CardLimitReached, InvalidField, PaymentMethodNotAccepted
from domain.events.event import EventType
from domain.hosted_payments.link import ClickNeeded
from domain.psps.card import Funding
from domain.psps.hosted_page import Authentication
from domain.sessions.end import NotAccepted, SessionStatus
from domain.sessions.request import AddCardRequest
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID
from tests.installation import (
    NO_PREPAID,
    PREPAID_CARD,
    REDIRECT_URI,
    Installation,
    Trouble,
    psps_that,
)
from tests.simulation.psp import LASTING_TOKENS, LastingTokens

AUTHENTICATED: Final[dict[str, Any]] = {"authentication": Authentication.REQUIRED}


def with_prepaid_card(installation: Installation) -> CardSession:
    """Return a session whose prepaid card was just not accepted."""
    installation.configure(**NO_PREPAID)
    session = installation.session_with_card(PREPAID_CARD)
    assert installation.return_to_shop(session) != REDIRECT_URI
    return installation.session(session.token_id)


def open_by_click(installation: Installation, session: CardSession) -> None:
    installation.use_cases.open_hosted_page(key=session.link_key, by_click=True)


def codes(installation: Installation, session: CardSession) -> list[tuple[int, str | None]]:
    with installation.storage.read() as unit:
        return [(each.number, each.code) for each in unit.refused_cards.of(session.token_id)]


def test_a_link_still_works_for_another_card_if_a_prepaid_card_was_not_accepted(
    installation: Installation,
) -> None:
    session = with_prepaid_card(installation)
    # The guest first reads why the card was not accepted.
    with pytest.raises(ClickNeeded):
        installation.open_page(session)
    open_by_click(installation, session)
    installation.type_card(session)

    assert installation.return_to_shop(session) == REDIRECT_URI
    settled = installation.session(session.token_id)
    assert (settled.status, settled.not_accepted) == (SessionStatus.COMPLETED, None)
    (account,) = installation.accounts()
    assert account.funding is Funding.CREDIT
    installation.reconcile()
    assert installation.tokens_at_psp() == {account.token}


def test_a_prepaid_card_that_is_not_accepted_is_discarded(installation: Installation) -> None:
    installation.has_endpoint("https://shop.example/events")
    session = with_prepaid_card(installation)
    installation.reconcile()

    assert (session.status, session.not_accepted) == (SessionStatus.OPEN, NotAccepted.FUNDING)
    assert session.failure is None
    assert not installation.accounts()
    assert installation.tokens_at_psp() == frozenset()
    installation.clock.advance(timedelta(days=1))
    installation.reconcile()

    ended = installation.session(session.token_id)
    refusal = PaymentMethodNotAccepted()
    assert ended.status is SessionStatus.FAILED
    assert ended.failure is not None
    assert (ended.failure.code, ended.failure.message) == (400, refusal.message)
    assert [(each.event.type, each.event.reason) for each in installation.deliveries()] == [
        (EventType.SESSION_FAILED, refusal.type),
        (EventType.SESSION_CARD_DECLINED, "funding_not_accepted"),
    ]
    assert codes(installation, session) == [(0, "funding_not_accepted")]


@pytest.mark.parametrize("second", ["no card", "another prepaid card"])
def test_a_late_webhook_about_a_card_that_was_not_accepted_changes_nothing(
    installation: Installation, second: str
) -> None:
    session = with_prepaid_card(installation)
    late = installation.webhook()
    installation.provider.have(Trouble.REFUSED, "discard")
    installation.reconcile()
    open_by_click(installation, session)
    if second == "no card":
        installation.psp.close_page(installation.page_reference(session))
        installation.settle(session.token_id)
    else:
        installation.type_card(session, PREPAID_CARD, expiry=(10, 2032))
        installation.return_to_shop(session)
    before = installation.session(session.token_id)

    installation.receive_webhook(late)
    installation.reconcile()

    after = installation.session(session.token_id)
    assert (after.attempt, after.not_accepted) == (before.attempt, before.not_accepted)
    for _ in range(8):
        installation.reconcile()
        installation.clock.advance(timedelta(hours=6))
    ended = installation.session(session.token_id)
    expected = SessionStatus.EXPIRED if second == "no card" else SessionStatus.FAILED
    assert (ended.status, ended.due_at) == (expected, None)


def test_a_prepaid_card_is_not_accepted_if_the_guest_types_it_a_second_time(
    installation: Installation,
) -> None:
    # The PSP gives the same token for the same card, and the discard has begun.
    psp = installation.provider
    psp._provider = LastingTokens(psp._provider, installation.psp, frozenset())
    installation.configure(merchant_account=LASTING_TOKENS, **NO_PREPAID)
    session = installation.returned_session(PREPAID_CARD)
    psp.have(Trouble.BEFORE_IT_ACTED, "discard")
    installation.reconcile()
    psp.recover()
    open_by_click(installation, session)
    installation.clock.advance(timedelta(seconds=3))
    installation.type_card(session, PREPAID_CARD)

    assert installation.return_to_shop(session) != REDIRECT_URI
    installation.clock.advance(timedelta(days=1))
    for _ in range(3):
        installation.reconcile()
        installation.clock.advance(timedelta(minutes=1))
    ended = installation.session(session.token_id)
    assert ended.status is SessionStatus.FAILED
    assert codes(installation, session) == [(0, "funding_not_accepted")] * 2
    assert installation.tokens_at_psp() == frozenset()


def test_the_guest_learns_why_a_card_was_not_accepted_even_if_a_webhook_arrived_first(
    installation: Installation,
) -> None:
    installation.configure(**NO_PREPAID)
    session = installation.session_with_card(PREPAID_CARD)
    installation.receive_webhook()
    installation.reconcile()

    assert installation.session(session.token_id).not_accepted is NotAccepted.FUNDING
    assert installation.return_to_shop(session) != REDIRECT_URI


@pytest.mark.parametrize("ends_by", ["a later page", "a cancellation"])
def test_a_session_expires_if_it_is_cancelled_or_gets_another_page_after_an_unaccepted_card(
    installation: Installation, ends_by: str
) -> None:
    session = with_prepaid_card(installation)
    if ends_by == "a cancellation":
        installation.cancel_session(session)
    else:
        open_by_click(installation, session)
    installation.clock.advance(timedelta(days=1))
    installation.reconcile()

    ended = installation.session(session.token_id)
    assert (ended.status, ended.failure) == (SessionStatus.EXPIRED, None)


def test_a_card_that_was_not_accepted_counts_as_refused(installation: Installation) -> None:
    installation.configure(**NO_PREPAID, card_testing_limits="guest=off/2")
    for _ in range(2):
        installation.returned_session(PREPAID_CARD)

    with pytest.raises(CardLimitReached):
        installation.add_card()


def test_a_new_card_policy_does_not_apply_to_older_sessions(installation: Installation) -> None:
    session = installation.session_with_card(PREPAID_CARD)
    installation.configure(**NO_PREPAID)
    installation.return_to_shop(session)

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


@pytest.mark.parametrize("demanded_by", ["the center", "the client"])
def test_the_bank_authenticates_the_guest_if_authentication_is_required(
    installation: Installation, demanded_by: str
) -> None:
    if demanded_by == "the center":
        installation.configure(**AUTHENTICATED)
    asked = "required" if demanded_by == "the client" else None
    session = installation.session_with_card(authentication=asked)
    # The fake PSP asks for a challenge with any card.
    installation.psp.answer_challenge(installation.page_reference(session), confirmed=True)
    installation.return_to_shop(session)

    (account,) = installation.accounts()
    assert account.authenticated is True


def test_an_unauthenticated_card_is_not_accepted_if_authentication_is_required(
    installation: Installation,
) -> None:
    installation.configure(**AUTHENTICATED)
    # The page was made without authentication, as if by an earlier release.
    session = installation.opened_session()
    attempt = session.current_attempt
    reference = installation.page_reference(session)
    with installation.psp._database.write() as db:
        db.execute(
            "UPDATE pages SET page = json_set(page, '$.request.authentication', 'automatic')"
            " WHERE reference = ?",
            (reference,),
        )
    installation.type_card_and_return(session)

    refused = installation.session(session.token_id)
    assert refused.not_accepted is NotAccepted.AUTHENTICATION
    assert refused.current_attempt.request == attempt.request
    assert not installation.accounts()


def test_a_client_cannot_waive_the_authentication_of_a_center(installation: Installation) -> None:
    installation.configure(**AUTHENTICATED)

    session = installation.opened_session(authentication="automatic")

    assert session.current_attempt.request.authentication is Authentication.REQUIRED


def test_requiring_authentication_is_refused_if_the_psp_cannot_require_it(
    installation: Installation,
) -> None:
    add_card = installation.use_cases.add_card
    psps = psps_that(installation.settings.psps, requires_authentication=False)
    request = AddCardRequest(
        guest_id=GUEST_ID, center_id=CENTER_ID, redirect_uri=REDIRECT_URI, authentication="required"
    )

    with pytest.raises(InvalidField, match="authentication must be automatic, because fake cannot"):
        replace(add_card, psps=psps)(installation.caller, request)


@pytest.mark.parametrize("authentication", ["", "REQUIRED", True, ["required"]])
def test_add_card_refuses_an_unknown_value_for_authentication(
    installation: Installation, authentication: object
) -> None:
    with pytest.raises(InvalidField, match="authentication must be `automatic` or `required`"):
        installation.add_card(authentication=authentication)
