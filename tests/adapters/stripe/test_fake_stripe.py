"""The fake Stripe refuses the parameters that Stripe refuses, and sends what Stripe describes.

`make test-stripe` runs the contract suite, which the fake passes, against Stripe itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
import stripe

from adapters.psp_suite.clock import START
from adapters.stripe.calls import API_VERSION
from tests.adapters.stripe.conftest import GOOD
from tests.fake_stripe.described import require_response, validated
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.stripe import TEST_KEY
from tests.waiting import LIMIT_SECONDS


@pytest.fixture
def sdk(server: FakeStripeServer) -> Iterator[stripe.StripeClient]:
    http_client = stripe.RequestsClient(timeout=LIMIT_SECONDS)
    yield stripe.StripeClient(
        TEST_KEY,
        stripe_version=API_VERSION,
        base_addresses={"api": server.url},
        http_client=http_client,
    )
    # The SDK's own client has no way to close what it has opened.
    session = getattr(http_client._thread_local, "session", None)
    if session is not None:
        session.close()


@pytest.fixture
def customer(sdk: stripe.StripeClient) -> str:
    return sdk.v1.customers.create({"metadata": {"guest_id": "1"}}).id


# Any: what is refused is not of the form that the SDK describes.
def good(customer: str, /, **changes: Any) -> Any:
    parameters = {
        "mode": "setup",
        "allowed_payment_method_types": ["card"],
        "customer": customer,
        "success_url": "https://cards.example/return",
        "expires_at": int((START + timedelta(hours=1)).timestamp()),
        **changes,
    }
    return {name: value for name, value in parameters.items() if value is not None}


def at(after: timedelta) -> int:
    return int((START + after).timestamp())


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"payment_method_types": ["card"]}, "payment_method_types"),
        ({"setup_intent_data": {"usage": "off_session"}}, "setup_intent_data[usage]"),
        ({"success_url": "myspa://back"}, "success_url"),
        ({"allowed_payment_method_types": ["cash"]}, "allowed_payment_method_types[0]"),
        ({"allowed_payment_method_types": None}, "currency"),
        ({"wallet_options": {"link": {"display": "no"}}}, "wallet_options[link][display]"),
        ({"expires_at": at(timedelta(minutes=29, seconds=59))}, "expires_at"),
        ({"expires_at": at(timedelta(hours=24, seconds=1))}, "expires_at"),
        ({"customer": "cus_unknown"}, "customer"),
        ({"metadata": {"x": "1" * 501}}, "metadata[x]"),
        ({"custom_text": {"submit": {"message": "x" * 1201}}}, "custom_text[submit][message]"),
        (
            {"consent_collection": {"payment_method_reuse_agreement": {"position": "none"}}},
            "consent_collection[payment_method_reuse_agreement][position]",
        ),
        ({"branding_settings": {"button_color": "red"}}, "branding_settings[button_color]"),
        ({"branding_settings": {"display_name": ""}}, "branding_settings[display_name]"),
        (
            {"branding_settings": {"logo": {"type": "url", "url": "x"}}},
            "branding_settings[logo][url]",
        ),
        ({"branding_settings": {"name": "Spa"}}, "branding_settings[name]"),
    ],
)
def test_the_fake_stripe_refuses_a_page_with_an_invalid_parameter(
    sdk: stripe.StripeClient, customer: str, changes: dict[str, Any], param: str
) -> None:
    sdk.v1.checkout.sessions.create(good(customer))
    with pytest.raises(stripe.InvalidRequestError) as refused:
        sdk.v1.checkout.sessions.create(good(customer, **changes))
    assert refused.value.param == param


def test_the_installed_sdk_describes_the_requested_api_version() -> None:
    assert stripe.api_version == API_VERSION


def test_responses_from_the_fake_stripe_are_validated(
    sdk: stripe.StripeClient, customer: str, server: FakeStripeServer
) -> None:
    before = validated.copy()
    page = sdk.v1.checkout.sessions.create(good(customer))
    server.stripe.submit_card(page.id, GOOD)
    with pytest.raises(stripe.InvalidRequestError):
        sdk.v1.checkout.sessions.expire(page.id)

    assert validated - before == {
        "checkout.session": 1,
        "error": 1,
        "event about checkout.session": 1,
        "event about setup_intent": 1,
    }


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"nickname": "Zoe"}, "response has ['nickname']"),
        ({"tax_exempt": "maybe"}, "response.tax_exempt is 'maybe'"),
        ({"tax": {}}, "response.tax lacks ['automatic_tax', 'provider']"),
        ({"preferred_locales": ["de", 1]}, "response.preferred_locales[1] is 1"),
        ({"deleted": True}, "response has ['address', 'created', "),
    ],
)
def test_a_fake_response_that_differs_from_stripes_description_fails_the_test(
    server: FakeStripeServer, change: dict[str, Any], fault: str
) -> None:
    customer = server.stripe.create_customer(server.stripe.main, {})
    server.stripe.require(require_response, 200, customer | change)

    with pytest.raises(AssertionError, match=f"^{re.escape(fault)}"):
        server.close()
    server.stripe.broken.clear()


def test_a_fake_event_that_differs_from_stripes_description_fails_the_test(
    server: FakeStripeServer,
) -> None:
    server.stripe.tell(server.stripe.main, "never.heard_of", {"object": "customer"})

    with pytest.raises(AssertionError, match=r"^event.type is 'never.heard_of'"):
        server.close()
    server.stripe.broken.clear()
