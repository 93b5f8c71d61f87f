"""What is found at Stripe; what every check promises is in the contract suite."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from adapters.psp.findings import Diagnosis
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.samples import MERCHANT_ACCOUNT as MAIN
from adapters.stripe.plugin import PLUGIN
from adapters.stripe.provider import StripeProvider
from tests.adapters.stripe.conftest import CALM, KEYS
from tests.fake_stripe.server import FakeStripeServer, Trouble

URL: Final = "https://cards.example/webhooks/stripe"
EVENTS: Final = [
    "checkout.session.completed",
    "checkout.session.expired",
    "customer.deleted",
    "payment_method.automatically_updated",
    "payment_method.detached",
    "payment_method.updated",
    "setup_intent.setup_failed",
]
LISTING: Final = "GET /v1/webhook_endpoints"


def endpoint(**changes: Any) -> dict[str, Any]:
    found = {"url": URL, "status": "enabled", "enabled_events": EVENTS, "livemode": False}
    return {**found, **changes}


def found_by(provider: StripeProvider, about: str, url: str = URL) -> tuple[Diagnosis, str]:
    """Return what is found about something."""
    assert PLUGIN.check is not None
    ((diagnosis, _, text),) = (
        each for each in PLUGIN.check(provider, MAIN, url) if each.about == about
    )
    return diagnosis, text


@pytest.mark.parametrize(
    "endpoints",
    [
        [endpoint()],
        [endpoint(enabled_events=["*"])],
        [endpoint(url=f"{URL}/")],
        [endpoint(url=f"{URL}/{MAIN}")],
        [endpoint(status="disabled"), endpoint(enabled_events=EVENTS[:1]), endpoint()],
        [endpoint(enabled_events=EVENTS[:1]), endpoint(enabled_events=EVENTS[1:])],
    ],
)
def test_a_webhook_endpoint_with_its_events_is_fine(
    server: FakeStripeServer, provider: StripeProvider, endpoints: Sequence[dict[str, Any]]
) -> None:
    server.stripe.main.webhook_endpoints = [endpoint(url="https://other.example"), *endpoints]

    assert found_by(provider, "webhooks")[0] is Diagnosis.OK


@pytest.mark.parametrize(
    ("endpoints", "said"),
    [
        ([], "is not there"),
        ([endpoint(url="https://other.example")], "is not there"),
        ([endpoint(status="disabled")], f"does not get {', '.join(EVENTS)}"),
        ([endpoint(enabled_events=EVENTS[:-1])], f"does not get {EVENTS[-1]}"),
        ([endpoint(enabled_events=[*EVENTS[:2], EVENTS[-1]])], f"does not get {EVENTS[2]}, "),
    ],
    ids=["none", "another", "disabled", "event", "events of cards"],
)
def test_a_webhook_endpoint_without_its_events_is_a_problem(
    server: FakeStripeServer, provider: StripeProvider, endpoints: list[dict[str, Any]], said: str
) -> None:
    server.stripe.main.webhook_endpoints = endpoints

    diagnosis, text = found_by(provider, "webhooks")
    assert diagnosis is Diagnosis.PROBLEM
    assert f"{URL} {said}" in text


def test_stripe_cannot_call_this_machine_by_its_loopback_address(provider: StripeProvider) -> None:
    diagnosis, text = found_by(provider, "webhooks", "http://127.0.0.1:8000/webhooks/stripe")

    assert diagnosis is Diagnosis.UNKNOWN
    assert "`stripe listen`" in text


@pytest.mark.parametrize(
    ("trouble", "diagnosis", "said"),
    [
        (Trouble.FORBIDDEN, Diagnosis.UNKNOWN, "may not read"),
        (Trouble.UNAUTHORIZED, Diagnosis.PROBLEM, "does not accept the secret key"),
        (Trouble.AWAY, Diagnosis.PROBLEM, "no usable response (APIError, 503)"),
        (Trouble.NONSENSE, Diagnosis.PROBLEM, "no usable response (APIError, 200)"),
        (Trouble.REFUSED, Diagnosis.PROBLEM, "no usable response (InvalidRequestError, 400)"),
    ],
)
@pytest.mark.parametrize(("call", "about"), [("GET /v1/account", "keys"), (LISTING, "webhooks")])
def test_what_stripe_refuses_is_told_apart(
    server: FakeStripeServer,
    provider: StripeProvider,
    call: str,
    about: str,
    trouble: Trouble,
    diagnosis: Diagnosis,
    said: str,
) -> None:
    server.stripe.main.webhook_endpoints = [endpoint()]
    server.have(trouble, call)

    found = found_by(provider, about)
    assert found[0] is diagnosis
    assert said in found[1]
    other = "keys" if about == "webhooks" else "webhooks"
    assert found_by(provider, other)[0] is Diagnosis.OK


@pytest.mark.parametrize(
    ("ahead", "diagnosis", "said"),
    [
        (timedelta(minutes=1), Diagnosis.OK, ""),
        (timedelta(seconds=61), Diagnosis.PROBLEM, "61 seconds ahead of that of Stripe"),
        (timedelta(minutes=-3), Diagnosis.PROBLEM, "180 seconds behind that of Stripe"),
    ],
)
def test_the_clock_is_compared_with_stripes(
    server: FakeStripeServer, ahead: timedelta, diagnosis: Diagnosis, said: str
) -> None:
    clock = SettableClock(server.stripe.clock.now().replace(microsecond=0) + ahead)
    provider = StripeProvider({MAIN: KEYS}, clock=clock, api_base=server.url, retry_policy=CALM)

    found = found_by(provider, "clock")
    assert found[0] is diagnosis
    assert said in found[1]


def test_the_clock_is_compared_although_the_key_is_not_accepted(
    server: FakeStripeServer, provider: StripeProvider
) -> None:
    server.have(Trouble.UNAUTHORIZED)

    assert found_by(provider, "clock")[0] is Diagnosis.OK


def test_the_mode_is_named(server: FakeStripeServer) -> None:
    server.stripe.add_merchant("sk_live_shop", "whsec_x")
    keys = {"test": KEYS, "live": replace(KEYS, secret_key="sk_live_shop")}
    for mode, each in keys.items():
        provider = StripeProvider(
            {MAIN: each}, clock=server.stripe.clock, api_base=server.url, retry_policy=CALM
        )
        assert f"in {mode} mode" in found_by(provider, "keys")[1]
