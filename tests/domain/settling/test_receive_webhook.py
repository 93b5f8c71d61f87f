from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.fake_psp.signatures import sign
from adapters.psp_suite.samples import a_uuid
from domain.identifiers import MerchantAccount, ProviderName, TokenId
from domain.psps.hosted_page import EvidenceOrigin, WebhookDelivery, WebhookNotice
from domain.psps.payment_provider import ProviderUnavailable, WebhookRejected
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ANSWERED_WITHIN
from domain.sessions.session import CardSession
from tests.installation import MERCHANT, Installation


def delivery(installation: Installation, session: CardSession) -> WebhookDelivery:
    """Return the webhook that the PSP would send about the session's page just now."""
    now = installation.clock.now()
    event = installation.psp.take_due_event(now, until=now + timedelta(minutes=1))
    assert event is not None
    assert session.token_id.encode() in event.body
    signature = sign(event.body, secret=installation.psp.webhook_secret, now=now)
    return WebhookDelivery(headers={"fake-psp-signature": signature}, body=event.body)


def test_a_webhook_alone_gets_the_card_stored(installation: Installation) -> None:
    session = installation.session_with_card()

    installation.use_cases.receive_webhook(FAKE, delivery(installation, session))

    assert installation.provider.calls == ["start"]
    assert installation.session(session.token_id).status is SessionStatus.OPEN
    installation.reconcile()
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


# Shows F27.
@pytest.mark.parametrize("webhook", ["before", "during", "after", "instead"])
def test_a_card_is_stored_by_whatever_comes_first(installation: Installation, webhook: str) -> None:
    session = installation.session_with_card()
    told = delivery(installation, session)

    def receive() -> None:
        installation.use_cases.receive_webhook(FAKE, told)

    if webhook in ("before", "instead"):
        receive()
    if webhook == "during":
        installation.provider.meanwhile["outcome"] = receive
    if webhook != "instead":
        installation.return_to_shop(session)
    if webhook == "after":
        receive()
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED
    (account,) = installation.accounts()
    assert installation.tokens_at_psp() == {account.token}


# Shows F25.
def test_the_same_webhook_a_hundred_times_stores_one_card(installation: Installation) -> None:
    session = installation.session_with_card()
    same = delivery(installation, session)
    for _ in range(100):
        installation.use_cases.receive_webhook(FAKE, same)
        installation.reconcile()

    assert len(installation.accounts()) == 1


# Shows F4, F25.
def test_evidence_is_kept_once(installation: Installation) -> None:
    session = installation.session_with_card()
    same = delivery(installation, session)
    for _ in range(3):
        installation.use_cases.receive_webhook(FAKE, same)

    with installation.storage.read() as unit:
        assert len(unit.evidence.of(session.token_id)) == 1


# Shows I5.
def test_a_webhook_of_another_merchant_account_is_rejected(installation: Installation) -> None:
    session = installation.session_with_card()
    theirs = replace(
        installation.session(session.token_id).configuration,
        merchant_account=MerchantAccount("other"),
    )
    with installation.storage.write() as unit:
        current = unit.sessions.get(session.token_id)
        assert current is not None
        unit.sessions.update(replace(current, configuration=theirs))
        unit.commit()

    with pytest.raises(WebhookRejected, match=r"^the sessions belong to another merchant account$"):
        installation.use_cases.receive_webhook(FAKE, delivery(installation, session))


def test_a_forged_webhook_changes_nothing(installation: Installation) -> None:
    session = installation.session_with_card()
    before = installation.session(session.token_id)
    genuine = delivery(installation, session)

    with pytest.raises(WebhookRejected):
        installation.use_cases.receive_webhook(FAKE, replace(genuine, body=genuine.body + b" "))
    assert installation.session(session.token_id) == before


def test_a_webhook_about_nothing_we_know_is_ignored(installation: Installation) -> None:
    session = installation.session_with_card()
    unknown = delivery(installation, session)
    installation.loses("card_sessions")

    installation.use_cases.receive_webhook(FAKE, unknown)

    assert installation.accounts() == ()


def test_a_psp_that_is_not_set_up_sends_no_webhooks(installation: Installation) -> None:
    with pytest.raises(ProviderUnavailable, match=r"^no PSP named other is set up here$"):
        installation.use_cases.receive_webhook(
            ProviderName("other"), WebhookDelivery(headers={}, body=b"")
        )


# Shows F4, F30, F31.
def test_a_webhook_of_a_settled_session_changes_nothing(installation: Installation) -> None:
    session = installation.session_with_card()
    late = delivery(installation, session)
    installation.return_to_shop(session)
    done = installation.session(session.token_id)

    installation.use_cases.receive_webhook(FAKE, late)

    assert installation.session(session.token_id) == done


def of_another_merchant_account(installation: Installation) -> CardSession:
    """Have a session whose center takes cards through another merchant account."""
    session = installation.opened_session()
    configuration = replace(session.configuration, merchant_account=MerchantAccount("other"))
    theirs = replace(session, configuration=configuration)
    installation.put_session(theirs)
    return theirs


def a_notice_about(token_id: TokenId) -> WebhookNotice:
    return WebhookNotice(merchant_account=MERCHANT, content="event", token_id=token_id)


# Shows F32.
def test_a_notice_that_changes_nothing_does_not_keep_the_others_out(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = of_another_merchant_account(installation)
    settled, mine = installation.opened_session(), installation.opened_session()
    installation.type_card(settled)
    installation.settle(settled.token_id)
    named = (TokenId(a_uuid(999)), settled.token_id, theirs.token_id, mine.token_id)
    notices = [a_notice_about(token_id) for token_id in named]
    monkeypatch.setattr(installation.provider, "read_webhook", lambda _: notices)

    installation.use_cases.receive_webhook(FAKE, WebhookDelivery(headers={}, body=b""))

    assert installation.session(mine.token_id).due_at == installation.clock.now()
    assert installation.session(theirs.token_id).due_at == theirs.due_at
    assert installation.session(settled.token_id).due_at is None


def test_each_notice_of_a_webhook_counts_whatever_its_kind(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    account = installation.stored_card()
    nudged, told = installation.opened_session(), installation.opened_session()
    notices = [
        WebhookNotice(
            merchant_account=MERCHANT, content="", guest_reference=account.guest_reference
        ),
        replace(a_notice_about(nudged.token_id), signed=False),
        a_notice_about(told.token_id),
    ]
    monkeypatch.setattr(installation.provider, "read_webhook", lambda _: notices)
    installation.clock.advance(ANSWERED_WITHIN)

    installation.use_cases.receive_webhook(FAKE, WebhookDelivery(headers={}, body=b""))

    now = installation.clock.now()
    assert installation.account(account.account_id).due_at == now
    assert [installation.session(each.token_id).due_at for each in (nudged, told)] == [now, now]


def test_a_webhook_that_is_meant_for_others_throughout_is_rejected(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    notices = [a_notice_about(of_another_merchant_account(installation).token_id) for _ in range(2)]
    monkeypatch.setattr(installation.provider, "read_webhook", lambda _: notices)

    with pytest.raises(WebhookRejected):
        installation.use_cases.receive_webhook(FAKE, WebhookDelivery(headers={}, body=b""))


@pytest.mark.parametrize("signed", [True, False])
def test_a_notice_may_name_the_page_alone(
    installation: Installation, monkeypatch: pytest.MonkeyPatch, signed: bool
) -> None:
    session = installation.opened_session()
    notice = WebhookNotice(
        merchant_account=MERCHANT,
        content="event",
        page_reference=installation.page_reference(session),
        signed=signed,
    )
    monkeypatch.setattr(installation.provider, "read_webhook", lambda _: [notice])
    installation.clock.advance(ANSWERED_WITHIN)

    installation.use_cases.receive_webhook(FAKE, WebhookDelivery(headers={}, body=b""))

    assert installation.session(session.token_id).due_at == installation.clock.now()


class TestUnsigned:
    """Anybody may have sent it."""

    @pytest.fixture
    def session(self, installation: Installation, monkeypatch: pytest.MonkeyPatch) -> CardSession:
        """Return a session with a card, which every webhook is about."""
        session = installation.session_with_card()
        self.say(installation, monkeypatch, a_notice_about(session.token_id))
        installation.clock.advance(ANSWERED_WITHIN)
        return session

    def say(
        self, installation: Installation, monkeypatch: pytest.MonkeyPatch, notice: WebhookNotice
    ) -> None:
        notices = [replace(notice, signed=False)]
        monkeypatch.setattr(installation.provider, "read_webhook", lambda _: notices)

    def nudge(self, installation: Installation) -> None:
        installation.use_cases.receive_webhook(FAKE, WebhookDelivery(headers={}, body=b""))

    def test_it_gets_the_card_stored(
        self, installation: Installation, session: CardSession
    ) -> None:
        self.nudge(installation)

        installation.reconcile()
        assert installation.session(session.token_id).status is SessionStatus.COMPLETED

    def test_it_is_no_evidence(self, installation: Installation, session: CardSession) -> None:
        self.nudge(installation)

        with installation.storage.read() as unit:
            assert unit.evidence.of(session.token_id) == ()

    def test_a_flood_asks_the_psp_once_in_two_seconds(
        self, installation: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        session = installation.opened_session()
        self.say(installation, monkeypatch, a_notice_about(session.token_id))
        installation.clock.advance(ANSWERED_WITHIN)
        installation.provider.calls.clear()

        for _ in range(100):
            self.nudge(installation)
            installation.reconcile()
            installation.clock.advance(timedelta(seconds=0.1))

        assert installation.provider.calls == ["outcome"] * 5

    def test_it_reads_no_card_on_file(
        self, installation: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        account = installation.stored_card()
        notice = WebhookNotice(merchant_account=MERCHANT, content="", card_token=account.token)
        self.say(installation, monkeypatch, notice)

        self.nudge(installation)

        assert installation.accounts() == (account,)

    def test_nobody_learns_by_it_whose_a_session_is(
        self, installation: Installation, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        theirs = of_another_merchant_account(installation)
        written: list[str] = []
        installation.before_next_write(lambda: written.append("something"))
        for token_id in (theirs.token_id, TokenId(a_uuid(999))):
            self.say(installation, monkeypatch, a_notice_about(token_id))
            self.nudge(installation)

        assert written == []

    @pytest.mark.parametrize("is_settled", [True, False])
    def test_one_that_changes_nothing_takes_no_turn_to_write(
        self, installation: Installation, session: CardSession, is_settled: bool
    ) -> None:
        self.nudge(installation)
        if is_settled:
            installation.reconcile()
        else:
            self.nudge(installation)
        written: list[str] = []
        installation.before_next_write(lambda: written.append("something"))

        self.nudge(installation)

        assert written == []


# Shows F29.
def test_a_webhook_for_an_expired_session_has_it_asked_for_again(
    installation: Installation,
) -> None:
    session = installation.session_with_card()
    late = delivery(installation, session)
    expired = installation.session(session.token_id)
    installation.put_session(expired.without_card(expired.expires_at))

    installation.use_cases.receive_webhook(FAKE, late)
    installation.reconcile()

    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_returns_without_end_leave_room_for_webhooks(installation: Installation) -> None:
    session = installation.opened_session()
    for number in range(60):
        installation.use_cases.return_from_hosted_page(
            token_id=session.token_id, parameters={"result": str(number)}
        )
    installation.type_card(session)

    with installation.storage.read() as unit:
        assert len(unit.evidence.of(session.token_id)) == 50
    installation.use_cases.receive_webhook(FAKE, delivery(installation, session))
    with installation.storage.read() as unit:
        assert [each.origin for each in unit.evidence.of(session.token_id)][50:] == [
            EvidenceOrigin.WEBHOOK
        ]
