"""Requests are verified with the library of Standard Webhooks as they arrive."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

import pytest
from standardwebhooks.webhooks import WebhookVerificationError

from domain.events.event import BOTH_SECRETS_SIGN_FOR, Secrets
from tests.adapters.events.conftest import SECRETS, an_event, send
from tests.adapters.events.receiver import read_event
from tests.listening import ListeningServer, Request

NEXT: Final = "another secret, just as long as it"
BEFORE: Final = timedelta(minutes=-1)
AFTER: Final = timedelta(0)


def sent(
    receiver: ListeningServer, secrets: Secrets = SECRETS, now: datetime | None = None
) -> Request:
    """Send an event, and return the request that arrived."""
    assert send(f"{receiver.url}/events?from=cards", secrets, now) == 200
    return receiver.requests[-1]


def is_verified(request: Request, secret: str, **changed: str) -> bool:
    headers = {**request.headers, **{name.replace("_", "-"): changed[name] for name in changed}}
    try:
        event = read_event(secret, request.body, headers)
    except WebhookVerificationError:
        return False
    return bool(event["data"]["guest_id"] == an_event().guest_id)


def test_a_receiver_can_verify_the_signature_of_an_event(receiver: ListeningServer) -> None:
    request = sent(receiver)

    assert is_verified(request, SECRETS.current)
    assert (request.method, request.path) == ("POST", "/events?from=cards")
    assert request.headers["webhook-id"] == an_event().event_id
    assert request.headers["content-type"] == "application/json"
    assert request.headers["user-agent"].startswith("cardonfile/")
    assert request.headers["host"] == receiver.url.removeprefix("http://")


@pytest.mark.parametrize(("end", "signs"), [(BEFORE, True), (AFTER, False)])
def test_events_are_also_signed_with_the_previous_secret_for_24_hours(
    receiver: ListeningServer, end: timedelta, *, signs: bool
) -> None:
    now = datetime.now(UTC)
    secrets = SECRETS.rolled(NEXT, now - BOTH_SECRETS_SIGN_FOR - end)
    request = sent(receiver, secrets, now)

    assert is_verified(request, secrets.current)
    assert is_verified(request, SECRETS.current) is signs


def test_changing_the_id_or_time_of_an_event_invalidates_its_signature(
    receiver: ListeningServer,
) -> None:
    request = sent(receiver)
    later = str(int(request.headers["webhook-timestamp"]) + 1)

    assert not is_verified(request, SECRETS.current, webhook_timestamp=later)
    assert not is_verified(request, SECRETS.current, webhook_id="another")


def test_each_delivery_attempt_has_a_new_time_and_signature(receiver: ListeningServer) -> None:
    now = datetime.now(UTC)
    first, second = sent(receiver, now=now), sent(receiver, now=now + timedelta(minutes=4))

    assert is_verified(second, SECRETS.current)
    assert (first.body, first.headers["webhook-id"]) == (second.body, second.headers["webhook-id"])
    for name in ("webhook-timestamp", "webhook-signature"):
        assert first.headers[name] != second.headers[name]


def test_the_signed_time_is_the_unix_time_of_the_delivery_attempt(
    receiver: ListeningServer,
) -> None:
    now = datetime(2026, 11, 20, 12, 0, 0, 999_999, tzinfo=UTC)

    assert sent(receiver, now=now).headers["webhook-timestamp"] == "1795176000"
