"""A PSP reports a card from an earlier page. The card is stored or discarded."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from domain.psps.evidence import EvidenceOrigin
from domain.psps.hosted_page import PageClosed, Pending
from domain.psps.payment_provider import UNKNOWN_FOR
from domain.psps.webhook import WebhookDelivery, WebhookNotice
from domain.sessions.end import NotAccepted, SessionStatus
from domain.sessions.polling import POLL_EVERY
from domain.sessions.session import CardSession
from tests.installation import (
    GOOD_CARD,
    MERCHANT,
    NO_PREPAID,
    OTHER_GOOD_CARD,
    PREPAID_CARD,
    Installation,
    Trouble,
)

MINUTE = timedelta(minutes=1)


class Late:
    """A session with two pages. The PSP first reported that the first page ended without a card."""

    def __init__(
        self, installation: Installation, number: str = GOOD_CARD, *, tokens: int = 1
    ) -> None:
        self.it = installation
        self.session = installation.session_with_card(number)
        first = self.session.current_attempt.page
        assert first is not None
        self.first = first
        *_, self.token = found = installation.tokens_at_psp()
        assert len(found) == tokens
        outcome = installation.provider.outcome
        installation.provider.outcome = lambda request, page, known: (
            PageClosed() if page == first else outcome(request, page, known)
        )
        installation.open_page(self.session)
        installation.provider.outcome = outcome
        assert self.current.current_attempt.request.attempt == 2

    @property
    def current(self) -> CardSession:
        """Return the session as it is stored."""
        return self.it.session(self.session.token_id)

    def told(self, *, signed: bool = True, by_page: bool = True, by_session: bool = True) -> None:
        """Receive a webhook about the first page."""
        notice = WebhookNotice(
            merchant_account=MERCHANT,
            content="event",
            token_id=self.session.token_id if by_session else None,
            page_reference=self.first.reference if by_page else None,
            signed=signed,
        )
        self.it.provider.read_webhook = lambda _: [notice]
        self.it.receive_webhook(WebhookDelivery(headers={}, body=b""))

    def stores_another_card(self) -> None:
        """Have the guest type another card on the second page."""
        self.it.type_card_and_return(self.session, OTHER_GOOD_CARD)


@pytest.fixture
def late(installation: Installation) -> Late:
    return Late(installation)


# Shows I7.
@pytest.mark.parametrize(
    ("by_page", "by_session", "signed"),
    [(True, True, True), (False, True, True), (True, False, True), (True, False, False)],
)
def test_a_card_from_an_earlier_page_is_discarded_once_another_card_is_stored(
    late: Late, by_page: bool, by_session: bool, signed: bool
) -> None:
    late.stores_another_card()
    assert late.current.status is SessionStatus.COMPLETED
    completed = late.current
    late.it.clock.advance(MINUTE)

    late.told(by_page=by_page, by_session=by_session, signed=signed)
    late.it.reconcile()

    (account,) = late.it.accounts()
    assert late.it.tokens_at_psp() == {account.token} != {late.token}
    assert replace(late.current, ask_again_at=completed.ask_again_at) == completed


def test_a_card_from_an_earlier_page_is_discarded_while_another_page_is_open(late: Late) -> None:
    late.told()
    late.it.reconcile()

    assert late.it.tokens_at_psp() == frozenset()
    assert late.current.status is SessionStatus.OPEN
    late.stores_another_card()
    assert len(late.it.accounts()) == 1


@pytest.mark.parametrize("has_expired", [False, True])
def test_a_card_from_an_earlier_page_is_stored_if_no_other_page_is_open(
    late: Late, has_expired: bool
) -> None:
    second = late.it.page_reference(late.session)
    late.it.psp.close_page(second)
    late.it.settle(late.session.token_id)
    if has_expired:
        late.it.clock.advance(timedelta(hours=1))
        late.it.reconcile()
        assert late.current.status is SessionStatus.EXPIRED

    late.told()
    late.it.reconcile()

    assert late.current.status is SessionStatus.COMPLETED
    assert [account.token for account in late.it.accounts()] == [late.token]
    assert late.it.page_reference(late.session) == late.first.reference
    with late.it.storage.read() as unit:
        (kept,) = unit.earlier_pages.of(late.session.token_id)
    assert (kept.page_reference, kept.told_at) == (second, None)


def test_a_card_from_an_earlier_page_is_stored_if_the_later_card_was_not_accepted(
    installation: Installation,
) -> None:
    installation.configure(**NO_PREPAID)
    late = Late(installation)
    installation.type_card_and_return(late.session, PREPAID_CARD)
    assert late.current.not_accepted is NotAccepted.FUNDING

    late.told()
    installation.reconcile()

    assert [account.token for account in installation.accounts()] == [late.token]
    completed = late.current
    assert (completed.status, completed.not_accepted) == (SessionStatus.COMPLETED, None)
    # No card was refused on the page of the stored card.
    with installation.storage.read() as unit:
        refused = unit.refused_cards.of(late.session.token_id)
    assert [(each.attempt, each.code) for each in refused] == [(2, NotAccepted.FUNDING)]


def test_discarding_a_card_from_an_earlier_page_does_not_change_the_current_page(
    installation: Installation,
) -> None:
    installation.configure(**NO_PREPAID)
    late = Late(installation)
    outcome = installation.provider.outcome
    collected = outcome(late.session.current_attempt.request, late.first, [])
    # This PSP reports a card even after it was discarded.
    installation.provider.outcome = lambda request, page, known: (
        collected if page == late.first else outcome(request, page, known)
    )
    # The card is discarded, because the second page is open.
    late.told()
    installation.reconcile()
    installation.type_card_and_return(late.session, PREPAID_CARD)

    installation.clock.advance(MINUTE)
    late.told()
    installation.reconcile()

    assert late.current.current_attempt.request.attempt == 2
    assert late.current.not_accepted is NotAccepted.FUNDING


def test_a_card_on_file_from_an_earlier_page_counts_as_accepted(installation: Installation) -> None:
    installation.configure(**NO_PREPAID)
    installation.stored_card()
    late = Late(installation, tokens=2)
    installation.type_card_and_return(late.session, PREPAID_CARD)

    late.told()
    installation.reconcile()

    assert late.current.status is SessionStatus.FAILED
    with installation.storage.read() as unit:
        refused = unit.refused_cards.of(late.session.token_id)
    assert {(each.attempt, each.code) for each in refused} == {(1, None), (2, NotAccepted.FUNDING)}


def test_a_new_page_gets_a_number_that_no_page_has_had(installation: Installation) -> None:
    installation.configure(**NO_PREPAID)
    late = Late(installation, PREPAID_CARD)
    installation.psp.close_page(installation.page_reference(late.session))
    installation.settle(late.session.token_id)
    late.told()
    installation.reconcile()
    assert late.current.current_attempt.request.attempt == 1

    installation.use_cases.open_hosted_page(key=late.session.link_key, by_click=True)

    assert late.current.current_attempt.request.attempt == 3


@pytest.mark.parametrize("trouble", [Trouble.BEFORE_IT_ACTED, Trouble.NOT_FOUND])
def test_the_psp_is_asked_about_an_earlier_page_until_it_responds(
    late: Late, trouble: Trouble
) -> None:
    late.stores_another_card()
    late.it.provider.have(trouble, "outcome")
    late.told()
    late.it.reconcile()
    assert late.token in late.it.tokens_at_psp()

    late.it.provider.recover()
    late.it.clock.advance(UNKNOWN_FOR)
    late.it.reconcile()

    assert late.token not in late.it.tokens_at_psp()
    assert late.current.due_at is None


def test_a_webhook_during_a_call_causes_another_call(late: Late) -> None:
    late.stores_another_card()

    def meanwhile() -> None:
        late.it.clock.advance(timedelta(seconds=1))
        late.told()

    late.it.provider.meanwhile["outcome"] = meanwhile
    late.told()
    late.it.settle(late.session.token_id)
    assert late.current.due_at is not None

    late.it.reconcile()
    assert late.current.due_at is None


def test_the_psp_is_asked_again_about_an_earlier_page_that_is_pending(late: Late) -> None:
    late.stores_another_card()
    outcome = late.it.provider.outcome
    late.it.provider.outcome = lambda *_: Pending()
    late.told()
    late.it.reconcile()
    assert late.token in late.it.tokens_at_psp()
    due_at = late.current.due_at
    assert due_at is not None
    assert due_at <= late.it.clock.now() + POLL_EVERY

    late.it.provider.outcome = outcome
    late.it.clock.advance(POLL_EVERY)
    late.it.reconcile()

    assert late.token not in late.it.tokens_at_psp()
    assert late.current.due_at is None


def test_if_the_psp_finds_an_earlier_page_again_the_wait_for_a_second_failure_restarts(
    late: Late,
) -> None:
    late.stores_another_card()
    outcome = late.it.provider.outcome
    late.it.provider.have(Trouble.NOT_FOUND, "outcome")
    late.told()
    late.it.reconcile()
    late.it.provider.recover()
    late.it.provider.outcome = lambda *_: Pending()
    late.it.clock.advance(POLL_EVERY)
    late.it.reconcile()
    late.it.provider.outcome = outcome
    late.it.provider.have(Trouble.NOT_FOUND, "outcome")
    late.it.clock.advance(POLL_EVERY)
    late.it.reconcile()

    # This is the first failure since the PSP last found the page.
    assert late.current.due_at is not None
    late.it.clock.advance(UNKNOWN_FOR)
    late.it.reconcile()
    assert late.current.due_at is None


def test_cards_refused_on_an_earlier_page_are_counted(late: Late) -> None:
    late.it.provider.outcome = lambda *_: PageClosed(refused_cards=2, refusal_code="stolen_card")
    late.told()
    late.it.reconcile()

    with late.it.storage.read() as unit:
        refused = unit.refused_cards.of(late.session.token_id)
    assert {(card.attempt, card.number) for card in refused} >= {(1, 1), (1, 2)}


def test_an_earlier_page_is_stored_without_personal_data(late: Late) -> None:
    with late.it.storage.read() as unit:
        (kept,) = unit.earlier_pages.of(late.session.token_id)

    assert (kept.attempt.request.guest_name, kept.attempt.request.guest_email) == ("", None)


def test_a_signed_webhook_about_an_earlier_page_is_stored_as_evidence(late: Late) -> None:
    late.told()

    (evidence,) = late.it.evidence(late.session)
    assert evidence.origin is EvidenceOrigin.WEBHOOK


def test_many_webhooks_about_an_earlier_page_cause_few_calls(late: Late) -> None:
    late.stores_another_card()
    late.it.clock.advance(MINUTE)
    before = late.it.provider.calls.count("outcome")

    for _ in range(40):
        late.told(signed=False, by_session=False)
        late.it.reconcile()
        late.it.clock.advance(timedelta(seconds=0.1))

    assert late.it.provider.calls.count("outcome") - before <= 3


def test_an_erasure_waits_until_the_card_of_an_earlier_page_is_discarded(late: Late) -> None:
    late.stores_another_card()
    late.it.provider.have(Trouble.BEFORE_IT_ACTED, "outcome")
    late.told()
    late.it.erase_guest()
    late.it.reconcile()
    late.it.clock.advance(timedelta(minutes=5))
    late.it.container.finish_erasures()()
    with late.it.storage.read() as unit:
        assert len(unit.earlier_pages.of(late.session.token_id)) == 1

    late.it.provider.recover()
    for _ in range(3):
        late.it.clock.advance(timedelta(hours=1))
        late.it.reconcile()
        late.it.container.finish_erasures()()

    with late.it.storage.read() as unit:
        assert unit.earlier_pages.of(late.session.token_id) == ()
        erasure = unit.erasures.get(late.session.guest_id)
    assert erasure is not None
    assert erasure.done_at is not None
    assert late.it.tokens_at_psp() == frozenset()
