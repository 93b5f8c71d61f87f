"""A PSP does not find a page, perhaps only for now. A single failure decides nothing."""

from __future__ import annotations

from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from domain.psps.hosted_page import NoCardCollected
from domain.psps.payment_provider import UNKNOWN_FOR, ProviderUnavailable
from domain.sessions.end import SessionStatus
from tests.installation import REDIRECT_URI, Installation, Trouble

MINUTE = timedelta(minutes=1)


# Shows F47.
@pytest.mark.parametrize("waited", [timedelta(0), 9 * MINUTE, 25 * MINUTE])
def test_a_card_is_stored_even_if_the_psp_did_not_find_its_page_the_first_time(
    installation: Installation, waited: timedelta
) -> None:
    session = installation.session_with_card()
    installation.clock.advance(waited)
    installation.provider.have(Trouble.NOT_FOUND, "outcome")
    installation.settle(session.token_id)
    installation.provider.recover()

    assert installation.open_page(session) == REDIRECT_URI
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    installation.reconcile()
    assert installation.tokens_at_psp() == {each.token for each in installation.accounts()}


def test_a_link_still_leads_to_a_page_after_the_psp_failed_to_find_the_page_once(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    first = installation.page_reference(session)
    installation.provider.have(Trouble.NOT_FOUND, "outcome")
    for _ in range(9):
        assert first in installation.open_page(session)
        installation.clock.advance(MINUTE)

    installation.clock.advance(MINUTE)
    assert first not in installation.open_page(session)


@pytest.mark.parametrize("method", ["outcome", "close"])
def test_a_cancelled_session_ends_when_the_psp_has_failed_to_find_its_page_twice(
    installation: Installation, method: str
) -> None:
    session = installation.opened_session()
    installation.provider.have(Trouble.NOT_FOUND, method)

    assert installation.cancel_session(session).status is SessionStatus.OPEN
    due_at = installation.session(session.token_id).due_at
    assert due_at is not None
    assert due_at > installation.clock.now()
    installation.clock.advance(UNKNOWN_FOR)
    installation.reconcile()

    ended = installation.session(session.token_id)
    assert (ended.status, ended.due_at) == (SessionStatus.EXPIRED, None)


def test_a_page_does_not_end_if_the_psp_finds_the_page_between_two_failures(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    for trouble in (True, False, True):
        installation.provider.have(Trouble.NOT_FOUND, *(["outcome"] if trouble else ["discard"]))
        installation.settle(session.token_id)
        installation.clock.advance(UNKNOWN_FOR)

    assert not installation.session(session.token_id).current_attempt.over


def test_a_clock_that_was_ahead_does_not_delay_the_second_check(installation: Installation) -> None:
    session = installation.opened_session()
    installation.cancel_session(session)
    session = installation.opened_session()
    installation.provider.have(Trouble.NOT_FOUND, "outcome")
    installation.clock.advance(timedelta(days=365))
    installation.settle(session.token_id)
    installation.clock.advance(-timedelta(days=365))
    installation.cancel_session(session)

    installation.settle(session.token_id)
    installation.clock.advance(UNKNOWN_FOR)
    installation.settle(session.token_id)

    assert installation.session(session.token_id).status is SessionStatus.EXPIRED


def test_a_customer_that_the_psp_failed_to_find_once_does_not_use_up_an_attempt(
    installation: Installation,
) -> None:
    session = installation.add_card()
    installation.provider.have(Trouble.NOT_FOUND, "start")
    with pytest.raises(ProviderUnavailable):
        installation.open_page(session)
    installation.provider.recover()
    installation.clock.advance(timedelta(seconds=2))

    installation.open_page(session)

    assert installation.session(session.token_id).current_attempt.request.attempt == 1


def test_a_customer_that_is_never_found_causes_a_new_attempt(installation: Installation) -> None:
    session = installation.add_card()
    installation.provider.have(Trouble.NOT_FOUND, "start")
    for _ in range(2):
        with pytest.raises(ProviderUnavailable):
            installation.open_page(session)
        installation.clock.advance(UNKNOWN_FOR)
    installation.provider.recover()

    installation.open_page(session)

    assert installation.session(session.token_id).current_attempt.request.attempt == 2


@pytest.mark.parametrize("ends", ["by itself", "cancelled", "erased"])
def test_a_session_fails_if_the_psp_omits_required_details_of_the_card(
    installation: Installation, ends: str
) -> None:
    session = installation.session_with_card()
    (token,) = installation.tokens_at_psp()
    page = session.current_attempt.page
    assert page is not None
    incomplete = NoCardCollected(
        guest_reference=page.guest_reference,
        token=token,
        collected_at=installation.clock.now(),
        missing="expiry",
    )
    installation.provider.outcome = lambda *_: incomplete
    with capture_logs() as lines:
        if ends == "cancelled":
            installation.cancel_session(session)
        if ends == "erased":
            installation.erase_guest()
        for _ in range(4):
            installation.reconcile()
            installation.clock.advance(UNKNOWN_FOR)

    ended = installation.session(session.token_id)
    assert (ended.status, ended.reason_of_end) == (SessionStatus.FAILED, "card_incomplete")
    assert installation.tokens_at_psp() == frozenset()
    told = [line for line in lines if line["event"] == "psp_card_incomplete"]
    assert [(line["operation"], line["field"]) for line in told] == [("outcome", "expiry")]
