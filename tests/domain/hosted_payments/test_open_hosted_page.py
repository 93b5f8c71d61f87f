from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, a_uuid
from domain.hosted_payments.link import MAX_UPGRADE_DURATION, FormNeeded, LinkExpired, LinkUnknown
from domain.hosted_payments.open_hosted_page import PageUnderWay
from domain.identifiers import AccountId
from domain.permissions import Permission
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ANSWERED_WITHIN, ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from tests.builders import OTHER_CENTER_ID, a_shipped_consent
from tests.databases import change_by_hand, references_of
from tests.installation import BASE_URL, MISMATCHING_CARD, REDIRECT_URI, Installation, Trouble

HALF_AN_HOUR = timedelta(minutes=30)


def test_opening_a_link_for_the_first_time_creates_its_page(installation: Installation) -> None:
    session = installation.add_card(billing_info={"zipcode": "98101"})
    installation.clock.advance(timedelta(minutes=10))

    address = installation.open_page(session)

    assert address.startswith(f"{BASE_URL}/fake-psp/pages/")
    opened = installation.session(session.token_id)
    assert opened.expires_at == installation.clock.now() + timedelta(minutes=30)
    request = opened.current_attempt.request
    assert request.idempotency_key == f"{session.token_id}:1"
    assert request.return_uri == f"{BASE_URL}/hosted-payments/return?token_id={session.token_id}"
    assert request.cancel_uri == f"{BASE_URL}/hosted-payments/cancel?token_id={session.token_id}"
    assert request.redirect_origin == "https://shop.example"
    assert request.consent == a_shipped_consent()
    assert request.center_name in request.consent.text
    assert (request.guest_id, request.guest_name) == (GUEST_ID, "Zo\u00eb Null")
    assert request.guest_email == "zoe@guests.example"
    assert request.billing_info == session.billing_info


# Shows F35.
def test_opening_a_link_again_leads_to_the_same_page(installation: Installation) -> None:
    session = installation.add_card()
    address = installation.open_page(session)

    assert installation.open_page(session) == address
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    assert installation.open_page(session) == address
    assert installation.provider.calls.count("start") == 1


def test_opening_a_link_in_many_tabs_at_once_creates_one_page(installation: Installation) -> None:
    session = installation.add_card()

    def open_page(_: int) -> str | None:
        try:
            return installation.open_page(session)
        except PageUnderWay:
            return None

    assert set(at_once(8, open_page)) <= {None, installation.open_page(session)}
    assert installation.provider.calls.count("start") == 1


def test_a_second_tab_can_create_the_page_after_2_seconds(installation: Installation) -> None:
    session = installation.session_without_answer()

    installation.clock.advance(timedelta(seconds=1.9))
    with pytest.raises(PageUnderWay):
        installation.open_page(session)
    assert installation.provider.calls == []
    installation.clock.advance(timedelta(seconds=0.1))
    installation.open_page(session)
    assert installation.provider.calls == ["start"]


# Shows F2, F19.
@pytest.mark.parametrize("trouble", [Trouble.BEFORE_IT_ACTED, Trouble.AFTER_IT_ACTED])
def test_opening_a_link_after_the_psp_timed_out_repeats_the_same_request(
    installation: Installation, trouble: Trouble
) -> None:
    session = installation.session_without_answer(trouble)
    installation.clock.advance(timedelta(seconds=5))

    installation.open_page(session)

    asked = session.current_attempt.request
    assert installation.session(session.token_id).current_attempt.request == asked


def test_a_refused_page_causes_a_new_attempt(installation: Installation) -> None:
    session = installation.add_card()
    installation.provider.have(Trouble.REFUSED)
    with pytest.raises(ProviderUnavailable, match=r"^the PSP refused to make a page$"):
        installation.open_page(session)
    installation.provider.recover()

    installation.open_page(session)

    assert installation.session(session.token_id).current_attempt.request.attempt == 2


# Shows F24.
def test_opening_a_link_creates_a_new_page_if_the_last_page_has_ended(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    first = installation.page_reference(session)
    installation.psp.close_page(first)

    address = installation.open_page(session)

    assert first not in address
    assert installation.session(session.token_id).current_attempt.request.attempt == 2


def test_the_psp_is_not_called_about_a_page_known_to_have_ended(installation: Installation) -> None:
    session = installation.opened_session()
    installation.psp.close_page(installation.page_reference(session))
    installation.settle(session.token_id)

    installation.open_page(session)

    assert installation.provider.calls == ["start", "outcome", "start"]


# Shows F38.
@pytest.mark.parametrize("number", ["4242424242424242", MISMATCHING_CARD])
def test_the_link_of_a_settled_session_leads_back_to_the_shop(
    installation: Installation, number: str
) -> None:
    installation.configure(avs=True)
    address = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}
    session = installation.session_with_card(number, billing_info=address)

    assert installation.open_page(session) == REDIRECT_URI
    installation.clock.advance(timedelta(hours=2))
    assert installation.open_page(session) == REDIRECT_URI


@pytest.mark.parametrize(
    "link",
    [
        *("{}.", "{}).", "({})", "<{}>", "{}\r\n", "{}&amp;", "{}&amp;redirect_uri=x", "{}です。"),
        *(
            "\u201e{}\u201c",
            "\u201d{}\u201d",
            "\u00ab\u00a0{}\u00a0\u00bb",
            "{}\u3002",
            "\uff08{}\uff09",
        ),
        *("{}\u2026", "{}\u060c", "{}\u061f", "{}\u200f", "{}\u00a0", "{}\u200b", "%22{}%22"),
    ],
)
def test_a_link_works_even_if_punctuation_surrounds_its_key(
    installation: Installation, link: str
) -> None:
    session = installation.add_card()
    assert session.link_key is not None
    for key in (session.link_key, session.link_key.upper()):
        address = installation.use_cases.open_hosted_page(key=link.format(key))

        assert address == installation.open_page(session)


def test_only_sessions_of_an_earlier_release_open_without_a_key(installation: Installation) -> None:
    session = installation.add_card()
    open_page = installation.use_cases.open_hosted_page
    page_content = installation.container.find_page_content()
    for key in ("", None, session.token_id, "a" * 26):
        with pytest.raises(LinkUnknown):
            open_page(key=key, token_id=session.token_id)
        assert page_content(key=key, token_id=session.token_id) is None

    change_by_hand(installation.storage, "UPDATE card_sessions SET link_key = NULL")

    for token_id in (session.token_id, f"\u201e{session.token_id.upper()}\u201c"):
        address = open_page(key="", token_id=token_id)
        assert address == open_page(key=None, token_id=session.token_id)
    assert page_content(key="", token_id=session.token_id) is not None


@pytest.mark.parametrize(
    ("ago", "opens"), [(MAX_UPGRADE_DURATION, False), (MAX_UPGRADE_DURATION / 2, True)]
)
def test_a_link_without_a_key_opens_a_session_that_was_started_during_an_upgrade(
    installation: Installation, ago: timedelta, opens: bool
) -> None:
    installation.put_session(replace(installation.add_card(), link_key=None))
    installation.clock.advance(ago)
    session = installation.add_card()
    assert session.link_key is not None

    with nullcontext() if opens else pytest.raises(LinkUnknown):
        installation.use_cases.open_hosted_page(key="", token_id=session.token_id)


@pytest.mark.parametrize("key", ["", "x", "&amp;", "a" * 25, "a" * 26, a_uuid(1)])
def test_opening_an_unknown_link_is_refused(installation: Installation, key: str) -> None:
    with pytest.raises(LinkUnknown):
        installation.use_cases.open_hosted_page(key=key)


@pytest.mark.parametrize("table", ["guests", "centers"])
def test_a_link_is_refused_if_its_guest_or_center_is_deleted(
    installation: Installation, table: str
) -> None:
    session = installation.add_card()
    installation.unconfigure()
    installation.loses(table)

    with pytest.raises(LinkUnknown):
        installation.open_page(session)


def has_expired(installation: Installation, session: CardSession) -> bool:
    """Open the link. Return whether the link has expired and its page is closed."""
    with pytest.raises(LinkExpired):
        installation.open_page(session)
    installation.reconcile()
    is_over = installation.psp.page(installation.page_reference(session)).is_over
    return is_over and installation.session(session.token_id).status is SessionStatus.EXPIRED


def test_an_expired_link_stays_expired_even_if_the_psp_creates_its_page_late(
    installation: Installation,
) -> None:
    session = installation.session_without_answer()
    installation.clock.advance(timedelta(hours=2))

    assert has_expired(installation, session)


@pytest.mark.parametrize("call", ["start", "outcome"])
def test_a_link_that_expires_during_the_call_to_the_psp_does_not_open_a_page(
    installation: Installation, call: str
) -> None:
    session = installation.add_card()
    if call == "outcome":
        installation.open_page(session)
        installation.psp.close_page(installation.page_reference(session))
    installation.provider.meanwhile[call] = lambda: installation.clock.advance(HALF_AN_HOUR)

    assert has_expired(installation, session)


# Shows F38.
def test_opening_an_expired_link_does_not_call_the_psp(installation: Installation) -> None:
    session = installation.opened_session()
    installation.clock.advance(timedelta(minutes=31))
    calls = len(installation.provider.calls)

    for _ in range(3):
        with pytest.raises(LinkExpired):
            installation.open_page(session)
    assert len(installation.provider.calls) == calls


def test_a_link_whose_session_settles_leads_to_the_shop(installation: Installation) -> None:
    session = installation.opened_session()
    first = session.current_attempt
    installation.psp.close_page(installation.page_reference(session))

    def complete() -> None:
        current = installation.session(session.token_id)
        done = current.completed(AccountId(a_uuid(77)), installation.clock.now())
        installation.put_session(replace(done, attempt=first))

    installation.provider.meanwhile["start"] = complete

    assert installation.open_page(session) == REDIRECT_URI
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_an_erasure_deletes_the_psp_customer_of_a_page_that_was_created_too_late(
    installation: Installation,
) -> None:
    session = installation.add_card()

    def be_refused_in_another_process() -> None:
        current = installation.session(session.token_id)
        installation.put_session(current.without_card(installation.clock.now()))

    installation.provider.meanwhile["start"] = be_refused_in_another_process
    with pytest.raises(ProviderUnavailable):
        installation.open_page(session)

    ((psp_account, reference),) = references_of(installation.storage, GUEST_ID)
    forgotten: list[object] = []
    installation.provider.forget_guest = lambda *it: forgotten.append(it)
    installation.erase_guest()
    installation.reconcile()
    installation.clock.advance(HALF_AN_HOUR)
    installation.container.finish_erasures()()
    assert forgotten == [(psp_account.merchant_account, reference)]


def test_a_page_created_late_does_not_replace_a_newer_page(installation: Installation) -> None:
    session = installation.add_card()

    def go_through_a_page_in_another_tab() -> None:
        installation.clock.advance(ANSWERED_WITHIN)
        installation.open_page(session)
        installation.psp.close_page(installation.page_reference(session))
        installation.open_page(session)

    installation.provider.meanwhile["start"] = go_through_a_page_in_another_tab

    address = installation.open_page(session)

    attempt = installation.session(session.token_id).current_attempt
    assert attempt.page is not None
    assert (attempt.request.attempt, attempt.page.address) == (2, address)
    assert not installation.psp.page(attempt.page.reference).is_over


def test_a_page_that_ended_before_the_psp_responded_is_not_shown(
    installation: Installation,
) -> None:
    session = installation.add_card()

    def lose_the_page_in_another_tab() -> None:
        installation.clock.advance(ANSWERED_WITHIN)
        installation.open_page(session)
        installation.psp.close_page(installation.page_reference(session))
        installation.settle(session.token_id)

    installation.provider.meanwhile["start"] = lose_the_page_in_another_tab

    with pytest.raises(ProviderUnavailable):
        installation.open_page(session)


def test_the_psp_receives_only_guest_details_that_the_caller_may_read(
    installation: Installation,
) -> None:
    session = installation.opened_session(caller=installation.a_caller(Permission.GUESTS_ADD))

    request = session.current_attempt.request
    assert (request.guest_name, request.guest_email) == ("", None)


def test_only_one_of_two_concurrent_tabs_calls_the_psp(installation: Installation) -> None:
    session = installation.opened_session()
    installation.clock.advance(ANSWERED_WITHIN)
    installation.before_next_write(lambda: installation.open_page(session))

    installation.open_page(session)

    assert installation.provider.calls.count("outcome") == 1


def guest_at_psp(installation: Installation, **changes: Any) -> str:
    """Start a session, open its page, and return the page's customer at the PSP."""
    page = installation.opened_session(**changes).current_attempt.page
    assert page is not None
    return page.guest_reference


# Shows S28.
def test_pages_with_different_guest_details_use_different_guest_references(
    installation: Installation,
) -> None:
    installation.has_other_center()
    adds = installation.a_caller(Permission.GUESTS_ADD)
    details = {"billing_info": {"email": "zoe@guests.example"}}
    references = {
        guest_at_psp(installation),
        guest_at_psp(installation, center_id=OTHER_CENTER_ID),
        guest_at_psp(installation, caller=adds, **details),
        guest_at_psp(installation, caller=adds),
    }

    assert len(references) == 4
    assert guest_at_psp(installation, **details) == guest_at_psp(installation)


def test_new_pages_do_not_use_guest_references_from_an_older_release(
    installation: Installation,
) -> None:
    before = installation.stored_card().guest_reference
    change_by_hand(
        installation.storage,
        "INSERT INTO guest_references SELECT provider, merchant_account, guest_id, reference "
        "FROM psp_guests",
        "DELETE FROM psp_guests",
    )

    assert guest_at_psp(installation) != before
    (account,) = installation.accounts()
    assert account.guest_reference == before


def test_a_page_that_is_opened_by_a_form_is_created_once(installation: Installation) -> None:
    start = installation.provider.start
    installation.provider.start = lambda request: replace(start(request), fields={"a": "1"})
    session = installation.add_card()

    pages = []
    for _ in range(2):
        with pytest.raises(FormNeeded) as needed:
            installation.open_page(session)
        pages.append(needed.value.page)

    assert pages[0] == pages[1] == installation.session(session.token_id).current_attempt.page
    assert pages[0].fields == {"a": "1"}
    installation.type_card(session)
    installation.clock.advance(ASK_AGAIN_AFTER)
    installation.return_to_shop(session)
    assert len(installation.accounts()) == 1


def test_a_card_that_a_webhook_reported_is_either_stored_or_discarded(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    # For a while, the PSP did not find the page.
    stored = installation.session(session.token_id)
    installation.put_session(stored.without_card(installation.clock.now()))
    installation.clock.advance(timedelta(minutes=1))
    installation.receive_webhook()

    installation.open_page(session)
    for _ in range(2):
        installation.clock.advance(timedelta(hours=1))
        installation.reconcile()

    assert installation.tokens_at_psp() == {each.token for each in installation.accounts()}
