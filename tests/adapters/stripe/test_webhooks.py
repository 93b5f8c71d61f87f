"""Stripe's webhooks, beyond the contract suite for PSPs."""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from adapters.psp_suite.clock import START, SettableClock
from adapters.psp_suite.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp_suite.samples import TOKEN_ID, a_page_request
from adapters.stripe import webhooks
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from domain.identifiers import MerchantAccount
from domain.psps.payment_provider import WebhookRejected
from domain.psps.webhook import WebhookDelivery, WebhookNotice
from tests.adapters.stripe import under_test
from tests.adapters.stripe.conftest import CHALLENGED, DECLINED, GOOD, KEYS
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET, signature

REQUEST = a_page_request(begun_at=START, live_until=START + timedelta(minutes=30))
READER = StripeProvider({MAIN: KEYS}, clock=SettableClock())


COMPLETED = "checkout.session.completed"
METADATA = {"token_id": TOKEN_ID, "attempt": "1"}
an_event = partial(under_test.an_event, COMPLETED, {"id": "cs_test_1", "metadata": METADATA})


def delivery(
    body: bytes, *, secret: str = TEST_SECRET, account: MerchantAccount | None = MAIN
) -> WebhookDelivery:
    signed = signature(body, secret=secret, at=START)
    return WebhookDelivery(headers={webhooks.HEADER: signed}, body=body, merchant_account=account)


def test_stripe_events_about_a_page_identify_its_session(
    provider: StripeProvider, server: FakeStripeServer
) -> None:
    merchant = server.stripe.main
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
                content=f"{event['type']} {event['id']} {event['data']['object']['id']}",
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


@pytest.mark.parametrize(
    "theirs",
    [
        {"type": "charge.succeeded", "data": {"object": 1}},
        {"data": {"object": {"id": "cs_test_2", "metadata": None}}},
        {"data": {"object": {"id": "cs_test_2", "metadata": {"order": "17"}}}},
    ],
)
def test_stripe_events_that_another_program_of_the_merchant_caused_are_ignored(
    theirs: dict[str, Any],
) -> None:
    assert READER.read_webhook(delivery(an_event(**theirs))) == ()


def test_signatures_by_both_secrets_are_accepted_during_a_secret_rotation() -> None:
    def is_accepted(secrets: tuple[str, ...], *signed_with: str) -> bool:
        keys = StripeKeys(secret_key=TEST_KEY, webhook_secrets=secrets)
        signed = [delivery(an_event(), secret=secret) for secret in signed_with]
        # While both secrets are valid, Stripe puts a signature of each into one header.
        macs = [each.headers[webhooks.HEADER].split(",")[1] for each in signed]
        header = ",".join([f"t={int(START.timestamp())}", *macs, "v0=" + "0" * 64])
        sent = replace(signed[0], headers={webhooks.HEADER: header})
        try:
            return bool(StripeProvider({MAIN: keys}, clock=SettableClock()).read_webhook(sent))
        except WebhookRejected:
            return False

    assert is_accepted(("whsec_old", "whsec_new"), "whsec_old", "whsec_new")
    assert is_accepted(("whsec_old",), "whsec_new", "whsec_old")
    assert not is_accepted(("whsec_new",), "whsec_old", "whsec_older")


@pytest.mark.parametrize("header", ["t=1,t=1,v1=" + "0" * 64, "t=\u0661,v1=" + "0" * 64])
def test_a_stripe_signature_with_two_times_or_a_malformed_time_is_rejected(header: str) -> None:
    with pytest.raises(WebhookRejected, match=r"not signed by Stripe$"):
        READER.read_webhook(replace(delivery(an_event()), headers={webhooks.HEADER: header}))


def test_a_stripe_signature_with_another_scheme_is_rejected() -> None:
    sent = delivery(an_event())
    signed = sent.headers[webhooks.HEADER].replace("v1=", "v0=")
    with pytest.raises(WebhookRejected, match="not signed by Stripe with a secret"):
        READER.read_webhook(replace(sent, headers={webhooks.HEADER: signed}))


def test_the_rejection_of_a_malformed_stripe_event_does_not_quote_the_event() -> None:
    with pytest.raises(WebhookRejected, match="not a known event") as rejected:
        READER.read_webhook(delivery(an_event(id=7)))

    assert rejected.value.__cause__ is None
    assert rejected.value.__suppress_context__


# Shows F33.
def test_a_stripe_event_is_rejected_if_its_mode_is_not_the_mode_of_the_key() -> None:
    live_keys = StripeKeys(secret_key="sk_live_main", webhook_secrets=(TEST_SECRET,))
    live = StripeProvider({MAIN: live_keys}, clock=SettableClock())

    assert live.read_webhook(delivery(an_event(livemode=True)))
    for reader, livemode in ((READER, True), (live, False)):
        with pytest.raises(WebhookRejected, match="mode of the key"):
            reader.read_webhook(delivery(an_event(livemode=livemode)))


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


@given(odd | st.lists(odd) | events)
def test_any_signed_webhook_body_is_either_read_or_rejected(content: object) -> None:
    with suppress(WebhookRejected):
        for notice in READER.read_webhook(delivery(json.dumps(content).encode())):
            assert notice.merchant_account == MAIN
