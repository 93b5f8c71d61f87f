from __future__ import annotations

from collections import Counter
from datetime import timedelta

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.signatures import sign
from adapters.psp_suite.concurrency import at_once
from adapters.sqlite import connection
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from tests.adapters.http.api import Api, refused_bare
from tests.installation import Installation
from tests.waiting import LIMIT_SECONDS

WEBHOOK = "/webhooks/fake"


def signed_event(installation: Installation, session: CardSession) -> tuple[bytes, dict[str, str]]:
    """Type a card. Return body and headers of the webhook about it."""
    installation.type_card(session)
    now = installation.clock.now()
    event = installation.psp.take_due_event(now, until=now + timedelta(minutes=1))
    assert event is not None
    signature = sign(event.body, secret=installation.psp.webhook_secret, now=now)
    return event.body, {"Fake-Psp-Signature": signature, "Content-Type": "application/json"}


def test_an_accepted_webhook_wakes_the_reconciler(api: Api) -> None:
    session = api.installation.opened_session()
    body, headers = signed_event(api.installation, session)
    api.installation.container.work_for_reconciler().clear()

    result = api.send("POST", WEBHOOK, body=body, headers=headers, authenticated=False)

    assert (result.status_code, result.json) == (200, {"status": "received"})
    assert api.installation.container.work_for_reconciler().is_set()
    assert api.installation.session(session.token_id).due_at == api.installation.clock.now()
    api.installation.reconcile()
    assert api.installation.session(session.token_id).status is SessionStatus.COMPLETED


# Shows F26.
@pytest.mark.installed(busy_timeout_seconds=LIMIT_SECONDS)
def test_many_concurrent_deliveries_of_one_webhook_store_one_card(
    api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a slow machine, some would otherwise wait too long for their turn to write, and get 503.
    monkeypatch.setattr(connection, "QUEUE_FULL_SECONDS", LIMIT_SECONDS)
    installation = api.installation
    body, headers = signed_event(installation, installation.opened_session())

    def deliver(_: int) -> int:
        result = api.send("POST", WEBHOOK, body=body, headers=headers, authenticated=False)
        installation.reconcile()
        return result.status_code

    assert at_once(24, deliver) == [200] * 24
    installation.reconcile()
    (account,) = installation.accounts()
    assert installation.tokens_at_psp() == {account.token}


# Shows F33.
def test_a_webhook_signed_too_far_in_the_past_or_future_is_refused(api: Api) -> None:
    session = api.installation.opened_session()
    body, headers = signed_event(api.installation, session)
    before = api.installation.session(session.token_id)
    for seconds in (301, -602):
        api.installation.clock.advance(timedelta(seconds=seconds))
        result = api.send("POST", WEBHOOK, body=body, headers=headers, authenticated=False)
        assert refused_bare(result) == (400, "Invalid webhook")
    assert api.installation.session(session.token_id) == before


# Shows F33.
def test_an_altered_or_unsigned_webhook_is_refused(api: Api) -> None:
    body, headers = signed_event(api.installation, api.installation.opened_session())

    for wrong_body, wrong_headers in (
        (body.replace(b"completed", b"Completed"), headers),
        (body, {}),
        (body, {"Fake-Psp-Signature": "t=x,v1=y"}),
        (b"", headers),
        (b"\xff", headers),
    ):
        with capture_logs() as lines:
            result = api.send("POST", f"{WEBHOOK}/spain", body=wrong_body, headers=wrong_headers)
        assert refused_bare(result) == (400, "Invalid webhook")
        (said,) = (line for line in lines if line["event"] == "webhook_rejected")
        assert (said["provider"], said["merchant_account"]) == ("fake", "spain")


def test_a_flood_of_rejected_webhooks_does_not_fill_the_log(installation: Installation) -> None:
    client = installation.client()
    with capture_logs() as lines:
        for provider in ("fake", "other"):
            for _ in range(101):
                client.simulate_post(f"/webhooks/{provider}", body=b"{}", remote_addr="2001:db8::9")

    said = [line for line in lines if line["event"] != "request"]
    assert Counter(line["event"] for line in said) == {
        "webhook_rejected": 100,
        "webhook_without_keys": 100,
    }
    assert {line["network"] for line in lines} == {"2001:db8::/64"}


def test_a_webhook_for_a_psp_that_is_not_set_up_responds_404(refusing: Api) -> None:
    with capture_logs() as lines:
        result = refusing.send("POST", "/webhooks/other/spain", body=b"{}", authenticated=False)

    assert refused_bare(result) == (404, "Not found")
    (said,) = (line for line in lines if line["event"] == "webhook_without_keys")
    assert (said["provider"], said["merchant_account"]) == ("unknown", "spain")


def test_a_malformed_account_name_in_the_path_of_a_webhook_is_not_logged(refusing: Api) -> None:
    names = ("jane.doe@example.com", "4242424242424242", "1" * 15_000, "424242")
    with capture_logs() as lines:
        for name in names:
            path = f"/webhooks/4242424242/{name}"
            refusing.send("POST", path, body=b"{}", authenticated=False)

    said = [line for line in lines if line["event"] == "webhook_without_keys"]
    assert {line["provider"] for line in said} == {"unknown"}
    assert [line["merchant_account"] for line in said] == [*["unknown"] * 3, "424242"]
