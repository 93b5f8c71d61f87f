from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.psp_suite.samples import a_uuid
from domain.identifiers import MerchantAccount, ProviderName, TokenId
from domain.psps.evidence import EvidenceOrigin
from domain.psps.payment_provider import ProviderUnavailable, WebhookRejected
from domain.psps.webhook import WebhookDelivery, WebhookNotice
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ANSWERED_WITHIN
from domain.sessions.session import CardSession
from tests.installation import MERCHANT, Installation


def receive(installation: Installation, *notices: WebhookNotice) -> None:
    """Receive a webhook from which its adapter reads these notices."""
    installation.provider.read_webhook = lambda _: notices
    installation.receive_webhook(WebhookDelivery(headers={}, body=b""))


# Shows F4, F27, F30, F31.
@pytest.mark.parametrize("webhook", ["before", "during", "after", "instead"])
def test_a_card_is_stored_whether_the_webhook_or_the_returning_browser_comes_first(
    installation: Installation, webhook: str
) -> None:
    session = installation.session_with_card()
    told = installation.webhook()
    if webhook in ("before", "instead"):
        installation.receive_webhook(told)
        assert installation.provider.calls == ["start"]
    if webhook == "during":
        installation.provider.meanwhile["outcome"] = lambda: installation.receive_webhook(told)
    if webhook != "instead":
        installation.return_to_shop(session)
    if webhook == "after":
        installation.receive_webhook(told)
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    (account,) = installation.accounts()
    assert installation.tokens_at_psp() == {account.token}


# Shows F4, F25.
def test_receiving_a_webhook_many_times_stores_the_card_once(installation: Installation) -> None:
    session = installation.session_with_card()
    same = installation.webhook()
    for _ in range(3):
        installation.receive_webhook(same)
    assert len(installation.evidence(session)) == 1
    for _ in range(10):
        installation.receive_webhook(same)
        installation.reconcile()

    assert len(installation.accounts()) == 1


def test_a_forged_webhook_changes_nothing(installation: Installation) -> None:
    session = installation.session_with_card()
    genuine = installation.webhook()

    with pytest.raises(WebhookRejected):
        installation.receive_webhook(replace(genuine, body=genuine.body + b" "))
    assert installation.evidence(session) == ()


def test_a_webhook_from_a_psp_that_is_not_set_up_is_rejected(installation: Installation) -> None:
    with pytest.raises(ProviderUnavailable, match=r"^no PSP named other is set up here$"):
        installation.use_cases.receive_webhook(
            ProviderName("other"), WebhookDelivery(headers={}, body=b"")
        )


def of_another_merchant_account(installation: Installation) -> CardSession:
    """Create a session of a center that uses another merchant account."""
    session = installation.opened_session()
    configuration = replace(session.configuration, merchant_account=MerchantAccount("other"))
    theirs = replace(session, configuration=configuration)
    installation.put_session(theirs)
    return theirs


def a_notice_about(token_id: TokenId) -> WebhookNotice:
    return WebhookNotice(merchant_account=MERCHANT, content="event", token_id=token_id)


# Shows F32.
def test_a_useless_item_in_a_webhook_does_not_block_the_other_items(
    installation: Installation,
) -> None:
    theirs = of_another_merchant_account(installation)
    settled, mine = installation.opened_session(), installation.opened_session()
    installation.type_card(settled)
    installation.settle(settled.token_id)
    named = (TokenId(a_uuid(999)), settled.token_id, theirs.token_id, mine.token_id)

    receive(installation, *map(a_notice_about, named))

    assert installation.session(mine.token_id).due_at == installation.clock.now()
    assert installation.session(theirs.token_id).due_at == theirs.due_at
    assert installation.session(settled.token_id).due_at is None


def test_every_item_in_a_webhook_takes_effect(installation: Installation) -> None:
    account = installation.stored_card()
    nudged, told, named_by_page = (installation.opened_session() for _ in range(3))
    installation.clock.advance(ANSWERED_WITHIN)

    receive(
        installation,
        WebhookNotice(
            merchant_account=MERCHANT, content="", guest_reference=account.guest_reference
        ),
        replace(a_notice_about(nudged.token_id), signed=False),
        a_notice_about(told.token_id),
        WebhookNotice(
            merchant_account=MERCHANT,
            content="event",
            page_reference=installation.page_reference(named_by_page),
        ),
    )

    now = installation.clock.now()
    assert installation.account(account.account_id).due_at == now
    for session in (nudged, told, named_by_page):
        assert installation.session(session.token_id).due_at == now


# Shows I5.
def test_a_webhook_about_another_merchant_account_is_rejected(installation: Installation) -> None:
    notices = [a_notice_about(of_another_merchant_account(installation).token_id) for _ in range(2)]

    with pytest.raises(WebhookRejected, match=r"^the sessions belong to another merchant account$"):
        receive(installation, *notices)


class TestUnsignedWebhooks:
    """Anyone may have sent an unsigned webhook."""

    def nudge(self, installation: Installation, notice: WebhookNotice) -> None:
        receive(installation, replace(notice, signed=False))

    def test_an_unsigned_webhook_is_not_stored_as_evidence(
        self, installation: Installation
    ) -> None:
        session = installation.session_with_card()
        by_page = WebhookNotice(
            merchant_account=MERCHANT,
            content="event",
            page_reference=installation.page_reference(session),
        )
        installation.clock.advance(ANSWERED_WITHIN)
        self.nudge(installation, by_page)

        assert installation.evidence(session) == ()
        installation.reconcile()
        assert installation.session(session.token_id).status is SessionStatus.COMPLETED

    def test_unsigned_webhooks_cause_at_most_one_call_every_2_seconds(
        self, installation: Installation
    ) -> None:
        session = installation.opened_session()
        installation.clock.advance(ANSWERED_WITHIN)
        installation.provider.calls.clear()

        for _ in range(50):
            self.nudge(installation, a_notice_about(session.token_id))
            installation.reconcile()
            installation.clock.advance(timedelta(seconds=0.1))

        assert installation.provider.calls == ["outcome"] * 3

    def test_an_unsigned_webhook_does_not_refresh_a_card(self, installation: Installation) -> None:
        account = installation.stored_card()
        notice = WebhookNotice(merchant_account=MERCHANT, content="", card_token=account.token)

        self.nudge(installation, notice)

        assert installation.accounts() == (account,)

    def test_an_unsigned_webhook_that_changes_nothing_does_not_write_to_the_database(
        self, installation: Installation
    ) -> None:
        settled, nudged = installation.session_with_card(), installation.opened_session()
        theirs = of_another_merchant_account(installation)
        installation.settle(settled.token_id)
        installation.clock.advance(ANSWERED_WITHIN)
        self.nudge(installation, a_notice_about(nudged.token_id))
        written: list[str] = []
        installation.before_next_write(lambda: written.append("something"))

        # Nor can the sender learn to which merchant account a session belongs.
        unknown = TokenId(a_uuid(999))
        for token_id in (settled.token_id, nudged.token_id, theirs.token_id, unknown):
            self.nudge(installation, a_notice_about(token_id))

        assert written == []


# Shows F29.
def test_a_webhook_about_an_expired_session_may_complete_it(installation: Installation) -> None:
    session = installation.session_with_card()
    expired = installation.session(session.token_id)
    installation.put_session(expired.without_card(expired.expires_at))

    installation.receive_webhook()
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_a_webhook_is_stored_as_evidence_even_after_many_browser_returns(
    installation: Installation,
) -> None:
    session = installation.opened_session()
    for number in range(60):
        installation.return_to_shop(session, result=str(number))
    installation.type_card(session)
    assert len(installation.evidence(session)) == 50

    installation.receive_webhook()

    (last,) = installation.evidence(session)[50:]
    assert last.origin is EvidenceOrigin.WEBHOOK
