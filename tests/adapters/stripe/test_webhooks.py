from __future__ import annotations

import json
import re
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.psp.contract.clock import START, SettableClock
from adapters.psp.contract.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp.contract.samples import TOKEN_ID, a_page_request
from adapters.stripe import webhooks
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from domain.hosted_pages import WebhookDelivery, WebhookNotice
from domain.identifiers import MerchantAccount, TokenId
from domain.ports import ProviderUnavailable, WebhookRejected
from tests.adapters.stripe.conftest import CHALLENGED, DECLINED, GOOD, KEYS, OTHER
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET, signature
from tests.strategies import altered

REQUEST = a_page_request(begun_at=START, live_until=START + timedelta(minutes=30))


def an_event(**changes: Any) -> bytes:
    event = {
        "id": "evt_1",
        "object": "event",
        "type": "checkout.session.completed",
        "livemode": False,
        "data": {
            "object": {
                "id": "cs_test_1",
                "object": "checkout.session",
                "metadata": {"token_id": TOKEN_ID, "attempt": "1"},
            }
        },
    }
    return json.dumps({**event, **changes}, indent=2).encode()


odd: st.SearchStrategy[Any] = st.none() | st.booleans() | st.integers() | st.text(max_size=5)
events = st.fixed_dictionaries(
    {"id": st.just("evt_1") | odd, "type": st.sampled_from(sorted(webhooks.PAGE_EVENTS)) | odd},
    optional={
        "livemode": st.just(False) | odd,
        "account": odd,
        "data": odd
        | st.fixed_dictionaries(
            {
                "object": odd
                | st.fixed_dictionaries(
                    {"id": st.just("cs_test_1") | odd},
                    optional={"metadata": odd | st.dictionaries(st.just("token_id"), odd)},
                )
            }
        ),
    },
)
"""Events of which any part may be missing or of another type."""


def delivery(
    body: bytes,
    *,
    secret: str = TEST_SECRET,
    age: timedelta = timedelta(0),
    account: MerchantAccount | None = MAIN,
) -> WebhookDelivery:
    signed = signature(body, secret=secret, at=START - age)
    return WebhookDelivery(headers={webhooks.HEADER: signed}, body=body, merchant_account=account)


@pytest.fixture
def provider(clock: SettableClock) -> StripeProvider:
    return StripeProvider({MAIN: KEYS, OTHER: KEYS}, clock=clock)


def test_the_events_of_a_page_name_its_session(
    server: FakeStripeServer, clock: SettableClock
) -> None:
    merchant = server.stripe.main
    provider = StripeProvider({MAIN: KEYS}, clock=clock, api_base=server.url)
    taken = provider.start(REQUEST).reference
    for card in (DECLINED, CHALLENGED):
        server.stripe.submit_card(taken, card)
    server.stripe.answer_challenge(taken, confirmed=False)
    server.stripe.submit_card(taken, GOOD)
    expired = provider.start(replace(REQUEST, attempt=2)).reference
    server.stripe.expire_session(merchant, {}, expired)

    notices = [
        (event["type"], provider.read_webhook(delivery(json.dumps(event).encode())))
        for event in merchant.events
    ]

    def notice(number: int, page: str | None) -> tuple[WebhookNotice]:
        event = merchant.events[number]
        return (
            WebhookNotice(
                merchant_account=MAIN,
                content=f"{event['type']} {event['id']}",
                token_id=REQUEST.token_id,
                page_reference=page,
            ),
        )

    assert notices == [
        ("setup_intent.setup_failed", notice(0, None)),
        ("setup_intent.setup_failed", notice(1, None)),
        ("setup_intent.succeeded", ()),
        ("checkout.session.completed", notice(3, taken)),
        ("checkout.session.expired", notice(4, expired)),
    ]


@pytest.mark.parametrize("kind", ["customer.updated", "charge.succeeded", "made.up"])
def test_other_kinds_say_nothing(provider: StripeProvider, kind: str) -> None:
    assert provider.read_webhook(delivery(an_event(type=kind, data={"object": 1}))) == ()


@pytest.mark.parametrize("metadata", [None, {}, {"order": "17"}])
def test_a_page_of_the_merchants_other_programs_says_nothing(
    provider: StripeProvider, metadata: dict[str, str] | None
) -> None:
    theirs = {"object": {"id": "cs_test_2", "metadata": metadata}}
    assert provider.read_webhook(delivery(an_event(data=theirs))) == ()


@pytest.mark.parametrize("seconds", [-300, 0, 300])
def test_a_signature_may_be_300_seconds_off(provider: StripeProvider, seconds: int) -> None:
    assert provider.read_webhook(delivery(an_event(), age=timedelta(seconds=seconds)))


@pytest.mark.parametrize("seconds", [-(10**9), -301, 301, 10**9])
def test_a_signature_too_old_or_too_far_ahead_is_rejected(
    provider: StripeProvider, seconds: int
) -> None:
    with pytest.raises(WebhookRejected, match="too long ago, or too far ahead"):
        provider.read_webhook(delivery(an_event(), age=timedelta(seconds=seconds)))


def test_f34_a_secret_is_rolled(clock: SettableClock) -> None:
    def reads(secrets: tuple[str, ...], *signed_with: str) -> bool:
        keys = StripeKeys(secret_key=TEST_KEY, webhook_secrets=secrets)
        signed = [delivery(an_event(), secret=secret) for secret in signed_with]
        # While both are valid, Stripe signs with each, in one header.
        macs = [each.headers[webhooks.HEADER].split(",")[1] for each in signed]
        header = ",".join([f"t={int(START.timestamp())}", *macs, "v0=" + "0" * 64])
        sent = replace(signed[0], headers={webhooks.HEADER: header})
        try:
            return bool(StripeProvider({MAIN: keys}, clock=clock).read_webhook(sent))
        except WebhookRejected:
            return False

    assert reads(("whsec_old",), "whsec_old")
    assert reads(("whsec_old", "whsec_new"), "whsec_old")
    assert reads(("whsec_old", "whsec_new"), "whsec_new")
    assert reads(("whsec_old", "whsec_new"), "whsec_old", "whsec_new")
    assert reads(("whsec_old",), "whsec_new", "whsec_old")
    assert reads(("whsec_new",), "whsec_new")
    assert not reads(("whsec_new",), "whsec_old")


def test_a_forged_or_altered_event_is_rejected(provider: StripeProvider) -> None:
    good = delivery(an_event())
    later = f"t={int(START.timestamp()) + 1}"
    for wrong in (
        delivery(an_event(), secret="whsec_guessed"),
        replace(good, body=an_event(id="evt_2")),
        replace(good, body=good.body + b"\n"),
        replace(good, headers={}),
        replace(
            good,
            headers={webhooks.HEADER: f"{later},{good.headers[webhooks.HEADER].split(',')[1]}"},
        ),
    ):
        with pytest.raises(WebhookRejected):
            provider.read_webhook(wrong)


@pytest.mark.parametrize(
    "header",
    [
        "",
        ",",
        "t=,v1=",
        "t=1",
        "v1=" + "0" * 64,
        "t=\u0661,v1=" + "0" * 64,
        "t=1,v1=\u00e9",
        "t=1,t=1,v1=" + "0" * 64,
        "t=" + "9" * 5000,
        "\x00",
    ],
)
def test_a_malformed_signature_is_rejected(provider: StripeProvider, header: str) -> None:
    with pytest.raises(WebhookRejected):
        provider.read_webhook(replace(delivery(an_event()), headers={webhooks.HEADER: header}))


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"type": "\xff"}',
        b"[" * 100_000,
        b'{"x":' * 100_000,
        an_event(id=7),
        an_event(livemode="false"),
        an_event(data=None),
        an_event(data={"object": {"id": "cs_test_1", "metadata": {"token_id": 1}}}),
    ],
)
def test_a_malformed_event_is_rejected_though_it_is_signed(
    provider: StripeProvider, body: bytes
) -> None:
    with pytest.raises(WebhookRejected, match="no event") as rejected:
        provider.read_webhook(delivery(body))
    assert rejected.value.__cause__ is None
    assert rejected.value.__suppress_context__


def test_live_and_test_mode_are_kept_apart(provider: StripeProvider, clock: SettableClock) -> None:
    live_keys = StripeKeys(secret_key="sk_live_main", webhook_secrets=(TEST_SECRET,))
    live = StripeProvider({MAIN: live_keys}, clock=clock)
    assert live.read_webhook(delivery(an_event(livemode=True)))
    for reader, livemode in ((provider, True), (live, False)):
        with pytest.raises(WebhookRejected, match="test and live mode"):
            reader.read_webhook(delivery(an_event(livemode=livemode)))


def test_an_event_of_a_connected_account_is_rejected(provider: StripeProvider) -> None:
    with pytest.raises(WebhookRejected, match="connected account"):
        provider.read_webhook(delivery(an_event(account="acct_1")))


def test_each_account_has_its_own_secrets(clock: SettableClock) -> None:
    other = StripeKeys(secret_key="sk_test_other", webhook_secrets=("whsec_other",))
    provider = StripeProvider({MAIN: KEYS, OTHER: other}, clock=clock)

    (notice,) = provider.read_webhook(delivery(an_event(), secret="whsec_other", account=OTHER))
    assert notice.merchant_account == OTHER
    for secret, account in ((TEST_SECRET, OTHER), ("whsec_other", MAIN)):
        with pytest.raises(WebhookRejected):
            provider.read_webhook(delivery(an_event(), secret=secret, account=account))


def test_the_address_without_a_name_is_the_default_accounts(clock: SettableClock) -> None:
    default = MerchantAccount("default")
    provider = StripeProvider({default: KEYS}, clock=clock)
    (notice,) = provider.read_webhook(delivery(an_event(), account=None))
    assert (notice.merchant_account, notice.token_id) == (default, TokenId(TOKEN_ID))


@pytest.mark.parametrize("account", [None, MerchantAccount("unknown"), MerchantAccount("\x1b[2J")])
def test_an_account_that_is_not_set_up_is_not_here(
    provider: StripeProvider, account: MerchantAccount | None
) -> None:
    with pytest.raises(ProviderUnavailable):
        provider.read_webhook(delivery(an_event(), account=account))


@given(st.data())
def test_whatever_is_altered_is_rejected(data: st.DataObject) -> None:
    provider = StripeProvider({MAIN: KEYS}, clock=SettableClock())
    sent = delivery(an_event())
    signed = sent.headers[webhooks.HEADER]
    time, mac = (part.partition("=")[2] for part in signed.split(","))
    body = data.draw(st.just(sent.body) | altered(sent.body))
    header = data.draw(altered(signed.encode()) | st.binary()).decode("latin-1")

    parts = [part.partition("=")[::2] for part in header.split(",")]
    times = [value for name, value in parts if name == "t" and re.fullmatch("[0-9]{1,12}", value)]
    is_signed = body == sent.body and times == [time] and ("v1", mac) in parts
    delivered = replace(sent, headers={webhooks.HEADER: header}, body=body)
    if is_signed:
        assert provider.read_webhook(delivered)
    else:
        with pytest.raises(WebhookRejected):
            provider.read_webhook(delivered)


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(), st.lists) | events)
def test_a_signed_body_of_any_kind_is_read_or_rejected(content: object) -> None:
    provider = StripeProvider({MAIN: KEYS}, clock=SettableClock())
    with suppress(WebhookRejected):
        for notice in provider.read_webhook(delivery(json.dumps(content).encode())):
            assert notice.merchant_account == MAIN
