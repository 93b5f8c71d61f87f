"""The fake Stripe refuses the parameters that Stripe refuses, and sends what Stripe describes."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

import pytest

from adapters.psp_suite.clock import START
from tests.fake_stripe.described import require_response
from tests.fake_stripe.parameters import Refused
from tests.fake_stripe.server import FakeStripeServer

TOO_SOON = START + timedelta(minutes=29, seconds=59)


@pytest.mark.parametrize(
    ("changes", "param"),
    [
        ({"payment_method_types": ["card"]}, "payment_method_types"),
        ({"expires_at": str(int(TOO_SOON.timestamp()))}, "expires_at"),
        ({"custom_text": {"submit": {"message": "x" * 1201}}}, "custom_text[submit][message]"),
    ],
)
def test_the_fake_stripe_refuses_a_page_with_an_invalid_parameter(
    server: FakeStripeServer, changes: dict[str, Any], param: str
) -> None:
    stripe = server.stripe
    page = {
        "mode": "setup",
        "allowed_payment_method_types": ["card"],
        "customer": stripe.create_customer(stripe.main, {})["id"],
        "success_url": "https://cards.example/return",
    }
    stripe.create_session(stripe.main, page)

    with pytest.raises(Refused) as refused:
        stripe.create_session(stripe.main, page | changes)
    assert refused.value.error["param"] == param


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"nickname": "Zoe"}, "response has ['nickname']"),
        ({"tax_exempt": "maybe"}, "response.tax_exempt is 'maybe'"),
        ({"tax": {}}, "response.tax lacks ['automatic_tax', 'provider']"),
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
