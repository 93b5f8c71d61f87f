from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from adapters.fake_psp import signatures
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import FakePsp
from domain.billing import AvsResult
from domain.hosted_pages import (
    CardCollected,
    CardRefused,
    HostedPage,
    PageClosed,
    Pending,
    WebhookDelivery,
)
from domain.identifiers import CardToken, GuestReference, MerchantAccount
from domain.ports import ProviderRefused, ProviderUnavailable, WebhookRejected
from tests.adapters.fake_psp.conftest import (
    BASE_URL,
    CHALLENGE,
    DECLINED,
    MAIN,
    WRONG_ADDRESS,
    card_entry,
    hosted_page_request,
    lock,
)
from tests.clock import START, SettableClock

REQUEST = hosted_page_request(avs=True)
SECRET = "a secret of the fake PSP"


def test_starting_answers_reference_address_end_and_guest(
    provider: FakeProvider, psp: FakePsp
) -> None:
    page = provider.start(REQUEST)
    assert page.address == f"{BASE_URL}/fake-psp/pages/{page.reference}"
    assert page.ends_at == START + timedelta(minutes=30)
    assert page.guest_reference == psp.page(page.reference).guest_reference
    assert provider.start(REQUEST) == page


def test_a_start_with_other_parameters_is_refused(provider: FakeProvider) -> None:
    provider.start(REQUEST)
    with pytest.raises(ProviderRefused):
        provider.start(replace(REQUEST, center_name="Another"))


def test_a_new_page_is_pending(provider: FakeProvider) -> None:
    assert provider.outcome(REQUEST, provider.start(REQUEST), ()) == Pending()


def test_a_collected_card_is_told_with_its_avs_result(provider: FakeProvider, psp: FakePsp) -> None:
    page = provider.start(REQUEST)
    psp.try_card(page.reference, card_entry(WRONG_ADDRESS))
    outcome = provider.outcome(REQUEST, page, ())
    assert isinstance(outcome, CardCollected)
    assert outcome.avs is AvsResult.MISMATCH
    assert outcome.collected_at == START
    assert outcome.card.last_four == "0010"
    assert outcome.card.guest_reference == page.guest_reference
    assert provider.outcome(REQUEST, page, ()) == outcome


def test_a_declined_card_is_told(provider: FakeProvider, psp: FakePsp) -> None:
    page = provider.start(REQUEST)
    psp.try_card(page.reference, card_entry(DECLINED))
    assert provider.outcome(REQUEST, page, ()) == CardRefused()


def test_an_open_challenge_is_pending(provider: FakeProvider, psp: FakePsp) -> None:
    page = provider.start(REQUEST)
    psp.try_card(page.reference, card_entry(CHALLENGE))
    assert provider.outcome(REQUEST, page, ()) == Pending()
    psp.answer_challenge(page.reference, confirmed=False)
    assert provider.outcome(REQUEST, page, ()) == CardRefused()


def test_a_closed_page_is_told(provider: FakeProvider) -> None:
    page = provider.start(REQUEST)
    provider.close(REQUEST, page)
    provider.close(REQUEST, page)
    assert provider.outcome(REQUEST, page, ()) == PageClosed()


def test_a_page_past_its_end_is_closed(provider: FakeProvider, clock: SettableClock) -> None:
    page = provider.start(REQUEST)
    clock.advance(timedelta(minutes=30))
    assert provider.outcome(REQUEST, page, ()) == PageClosed()


def test_an_unknown_page_is_closed(provider: FakeProvider) -> None:
    page = HostedPage(
        reference="page_unknown",
        address=BASE_URL,
        ends_at=START,
        guest_reference=GuestReference("guest_unknown"),
    )
    provider.close(REQUEST, page)

    assert provider.outcome(REQUEST, page, ()) == PageClosed()


def test_a_token_is_discarded_and_an_unknown_one_is_fine(
    provider: FakeProvider, psp: FakePsp
) -> None:
    page = provider.start(REQUEST)
    card = psp.try_card(page.reference, card_entry()).card
    assert card is not None
    provider.discard(MAIN, page.guest_reference, card.token)
    provider.discard(MAIN, page.guest_reference, CardToken("card_unknown"))
    assert psp.tokens(MAIN) == frozenset()


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


# Webhooks


@pytest.fixture
def reader(psp: FakePsp, clock: SettableClock) -> FakeProvider:
    return FakeProvider(psp, webhook_secret=SECRET, clock=clock)


def event(**changes: object) -> bytes:
    fields = {
        "id": "event_1",
        "type": "page.completed",
        "created": 1_800_000_000,
        "merchant_account": "main",
        "page": "page_1",
        "token_id": REQUEST.token_id,
        **changes,
    }
    return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


def delivery(
    body: bytes,
    *,
    secret: str = SECRET,
    age: timedelta = timedelta(0),
    merchant_account: MerchantAccount | None = None,
) -> WebhookDelivery:
    signature = signatures.sign(body, secret=secret, now=START - age)
    return WebhookDelivery(
        headers={signatures.HEADER: signature}, body=body, merchant_account=merchant_account
    )


@pytest.mark.parametrize("kind", ["page.completed", "page.closed"])
@pytest.mark.parametrize("named", [None, MAIN])
def test_a_signed_event_names_its_session(
    reader: FakeProvider, kind: str, named: MerchantAccount | None
) -> None:
    (notice,) = reader.read_webhook(delivery(event(type=kind), merchant_account=named))
    assert notice.merchant_account == MAIN
    assert notice.token_id == REQUEST.token_id
    assert notice.page_reference == "page_1"
    assert notice.content == f"{kind} event_1"


def test_an_event_of_another_kind_says_nothing(reader: FakeProvider) -> None:
    assert reader.read_webhook(delivery(event(type="payout.paid", page=None))) == ()


@pytest.mark.parametrize("seconds", [-300, 300])
def test_a_signature_may_be_300_seconds_off(reader: FakeProvider, seconds: int) -> None:
    assert reader.read_webhook(delivery(event(), age=timedelta(seconds=seconds)))


@pytest.mark.parametrize("seconds", [-301, 301, 10**9])
def test_a_signature_too_old_or_too_far_ahead_is_rejected(
    reader: FakeProvider, seconds: int
) -> None:
    with pytest.raises(WebhookRejected):
        reader.read_webhook(delivery(event(), age=timedelta(seconds=seconds)))


def test_a_forged_event_is_rejected(reader: FakeProvider) -> None:
    with pytest.raises(WebhookRejected):
        reader.read_webhook(delivery(event(), secret="guessed"))


def test_an_altered_event_is_rejected(reader: FakeProvider) -> None:
    altered = replace(delivery(event()), body=event(page="page_2"))
    with pytest.raises(WebhookRejected):
        reader.read_webhook(altered)


def test_an_altered_time_is_rejected(reader: FakeProvider) -> None:
    signed = delivery(event()).headers[signatures.HEADER]
    timestamp = int(START.timestamp())
    altered = signed.replace(f"t={timestamp}", f"t={timestamp + 1}")
    with pytest.raises(WebhookRejected):
        reader.read_webhook(WebhookDelivery(headers={signatures.HEADER: altered}, body=event()))


def test_an_event_for_another_merchant_account_is_rejected(reader: FakeProvider) -> None:
    with pytest.raises(WebhookRejected):
        reader.read_webhook(delivery(event(), merchant_account=MerchantAccount("other")))


@pytest.mark.parametrize(
    "signature",
    ["", "t=,v1=", "t=1", "v1=" + "0" * 64, "t=١٢٣,v1=" + "0" * 64, "t=1,v1=é", "\x00", "t=1,t=2"],
)
def test_a_malformed_signature_is_rejected(reader: FakeProvider, signature: str) -> None:
    with pytest.raises(WebhookRejected):
        reader.read_webhook(WebhookDelivery(headers={signatures.HEADER: signature}, body=event()))


def test_a_missing_signature_is_rejected(reader: FakeProvider) -> None:
    with pytest.raises(WebhookRejected):
        reader.read_webhook(WebhookDelivery(headers={}, body=event()))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b'{"type": 1}',
        b'{"type": "page.completed"}',
        b"\xff\xfe",
        b'{"type": "\xff"}',
        b"[" * 100_000,
        b'{"x":' * 100_000,
        event(created="now"),
        event(page=7),
    ],
)
def test_a_malformed_body_is_rejected_though_it_is_signed(
    reader: FakeProvider, body: bytes
) -> None:
    with pytest.raises(WebhookRejected):
        reader.read_webhook(delivery(body))


@pytest.mark.parametrize("secret", ["", "  "])
def test_an_empty_secret_refuses_to_start(psp: FakePsp, clock: SettableClock, secret: str) -> None:
    with pytest.raises(ValueError, match="webhook secret is empty"):
        FakeProvider(psp, webhook_secret=secret, clock=clock)
