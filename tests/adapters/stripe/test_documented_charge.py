"""The API version, and the documented request that charges a card, against the types of the SDK."""

from __future__ import annotations

import re

import stripe
from stripe.params import (
    PaymentIntentCreateParams,
    PaymentIntentCreateParamsPaymentMethodOptions,
    PaymentIntentCreateParamsPaymentMethodOptionsCard,
)

from adapters.stripe.calls import API_VERSION
from tests.fake_stripe.parameters import decode
from tests.programs import ROOT


def test_the_installed_sdk_is_for_the_api_version_of_our_requests() -> None:
    assert stripe.api_version == API_VERSION


def test_the_charge_request_in_the_stripe_docs_uses_only_parameters_of_the_api_version() -> None:
    page = (ROOT / "docs" / "providers" / "stripe.md").read_text()
    head, _, body = re.findall(
        r"^```http\n(POST .+?)\n(\n)(.+?)\n```$", page, re.MULTILINE | re.DOTALL
    )[0]

    sent = decode(body)

    assert f"Stripe-Version: {API_VERSION}" in head
    options = sent["payment_method_options"]
    assert isinstance(options, dict)
    card = options["card"]
    assert isinstance(card, dict)
    for given, known in (
        (sent, PaymentIntentCreateParams),
        (options, PaymentIntentCreateParamsPaymentMethodOptions),
        (card, PaymentIntentCreateParamsPaymentMethodOptionsCard),
    ):
        assert given.keys() <= known.__annotations__.keys()
    usage = PaymentIntentCreateParamsPaymentMethodOptionsCard.__annotations__[
        "stored_credential_usage"
    ]
    assert f"'{card['stored_credential_usage']}'" in str(usage)
