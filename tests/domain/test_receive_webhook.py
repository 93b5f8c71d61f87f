from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.fake_psp.signatures import sign
from domain.card_sessions import CardSession, SessionStatus
from domain.hosted_pages import WebhookDelivery
from domain.identifiers import MerchantAccount, ProviderName
from domain.ports import ProviderUnavailable, WebhookRejected
from entrypoints.container import FAKE
from tests.installation import Installation


def delivery(installation: Installation, session: CardSession) -> WebhookDelivery:
    """Give the webhook that the PSP would send about the session's page just now."""
    now = installation.clock.now()
    event = installation.psp.take_due_event(now, until=now + timedelta(minutes=1))
    assert event is not None
    assert session.token_id.encode() in event.body
    signature = sign(event.body, secret=installation.psp.webhook_secret, now=now)
    return WebhookDelivery(headers={"fake-psp-signature": signature}, body=event.body)


def test_a_webhook_alone_gets_the_card_stored(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)

    installation.use_cases.receive_webhook(FAKE, delivery(installation, session))

    assert installation.provider.calls == ["start"]
    assert installation.session(session.token_id).status is SessionStatus.OPEN
    installation.reconcile_until_idle()
    assert installation.session(session.token_id).status is SessionStatus.COMPLETED


def test_the_same_webhook_a_hundred_times_stores_one_card(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    same = delivery(installation, session)
    for _ in range(100):
        installation.use_cases.receive_webhook(FAKE, same)
        installation.reconcile()

    assert len(installation.accounts()) == 1


def test_evidence_is_kept_once(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    same = delivery(installation, session)
    for _ in range(3):
        installation.use_cases.receive_webhook(FAKE, same)

    with installation.storage.read() as unit:
        assert len(unit.evidence.of(session.token_id)) == 1


def test_a_webhook_of_another_merchant_account_is_rejected(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    theirs = replace(
        installation.session(session.token_id).configuration,
        merchant_account=MerchantAccount("other"),
    )
    with installation.storage.write() as unit:
        current = unit.sessions.get(session.token_id)
        assert current is not None
        unit.sessions.update(replace(current, configuration=theirs))
        unit.commit()

    with pytest.raises(WebhookRejected):
        installation.use_cases.receive_webhook(FAKE, delivery(installation, session))


def test_a_forged_webhook_changes_nothing(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    before = installation.session(session.token_id)
    genuine = delivery(installation, session)

    with pytest.raises(WebhookRejected):
        installation.use_cases.receive_webhook(FAKE, replace(genuine, body=genuine.body + b" "))
    assert installation.session(session.token_id) == before


def test_a_webhook_about_nothing_we_know_is_ignored(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    unknown = delivery(installation, session)
    installation.loses("card_sessions")

    installation.use_cases.receive_webhook(FAKE, unknown)

    assert installation.accounts() == ()


def test_a_psp_that_is_not_set_up_sends_no_webhooks(installation: Installation) -> None:
    with pytest.raises(ProviderUnavailable):
        installation.use_cases.receive_webhook(
            ProviderName("other"), WebhookDelivery(headers={}, body=b"")
        )


def test_a_webhook_of_a_settled_session_changes_nothing(installation: Installation) -> None:
    session = installation.opened_session()
    installation.type_card(session)
    late = delivery(installation, session)
    installation.return_to_shop(session)
    done = installation.session(session.token_id)

    installation.use_cases.receive_webhook(FAKE, late)

    assert installation.session(session.token_id) == done
