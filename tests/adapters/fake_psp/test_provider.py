"""What the contract suite for PSPs (adapters/psp_suite) does not cover of the adapter."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from adapters.fake_psp import signatures
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import Event, FakePsp, batch
from adapters.psp_suite.clock import START
from domain.identifiers import CardToken
from domain.psps.hosted_page import HostedPage, WebhookDelivery
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable, WebhookRejected
from tests.adapters.fake_psp.conftest import BASE_URL, MAIN, hosted_page_request, lock

REQUEST = hosted_page_request(avs=True)


def test_a_page_is_at_its_reference(provider: FakeProvider) -> None:
    page = provider.start(REQUEST)

    assert page.address == f"{BASE_URL}/fake-psp/pages/{page.reference}"


def test_a_page_lives_for_30_minutes_at_least(provider: FakeProvider) -> None:
    page = provider.start(replace(REQUEST, live_until=START + timedelta(minutes=15)))

    assert page.ends_at == START + timedelta(minutes=30)


def test_a_start_with_other_parameters_is_refused(provider: FakeProvider) -> None:
    provider.start(REQUEST)

    with pytest.raises(ProviderRefused):
        provider.start(replace(REQUEST, center_name="Another"))


@pytest.mark.parametrize(
    "call",
    [
        lambda provider, page: provider.start(replace(REQUEST, attempt=2)),
        lambda provider, page: provider.close(REQUEST, page),
        lambda provider, page: provider.discard(MAIN, page.guest_reference, CardToken("card_x")),
    ],
    ids=["start", "close", "discard"],
)
def test_a_locked_database_is_an_outage(
    provider: FakeProvider,
    psp: FakePsp,
    database: Path,
    call: Callable[[FakeProvider, HostedPage], object],
) -> None:
    page = provider.start(REQUEST)
    other = lock(psp, database)
    with pytest.raises(ProviderUnavailable):
        call(provider, page)
    other.close()


@pytest.fixture
def delivery(psp: FakePsp) -> WebhookDelivery:
    """A webhook of the fake PSP, whose address names no merchant account."""
    event = Event(
        id="event_1",
        type="page.completed",
        created=int(START.timestamp()),
        merchant_account=MAIN,
        page="page_1",
        token_id=REQUEST.token_id,
    )
    body = batch(msgspec.json.encode(event))
    signature = signatures.sign(body, secret=psp.webhook_secret, now=START)
    return WebhookDelivery(headers={signatures.HEADER: signature}, body=body)


def test_an_event_says_which_merchant_account_it_is_for(
    provider: FakeProvider, delivery: WebhookDelivery
) -> None:
    (notice,) = provider.read_webhook(delivery)

    assert notice.merchant_account == MAIN
    assert notice.content == "page.completed event_1"


# Shows S13.
def test_an_altered_time_is_rejected(provider: FakeProvider, delivery: WebhookDelivery) -> None:
    signature = delivery.headers[signatures.HEADER]
    timestamp = int(START.timestamp())
    altered = signature.replace(f"t={timestamp}", f"t={timestamp + 1}")

    with pytest.raises(WebhookRejected):
        provider.read_webhook(replace(delivery, headers={signatures.HEADER: altered}))
