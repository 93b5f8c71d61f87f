"""The check of a merchant account at Stripe, beyond the contract suite for PSPs."""

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
from domain.identifiers import DEFAULT_MERCHANT_ACCOUNT
from tests.adapters.stripe.conftest import KEYS, Shop
from tests.fake_stripe.server import Trouble

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


def found_by(shop: Shop, about: str, url: str = URL) -> tuple[Diagnosis, str]:
    """Return what the check finds about this subject."""
    assert PLUGIN.check is not None
    ((diagnosis, _, text),) = (
        each for each in PLUGIN.check(shop.provider, MAIN, url) if each.about == about
    )
    return diagnosis, text


@pytest.mark.parametrize(
    "endpoints",
    [
        [endpoint()],
        [endpoint(enabled_events=["*"])],
        [endpoint(url=f"{URL}/"), endpoint()],
        [endpoint(status="disabled"), endpoint(enabled_events=EVENTS[:1]), endpoint()],
        [endpoint(enabled_events=EVENTS[:1]), endpoint(enabled_events=EVENTS[1:])],
    ],
)
def test_the_stripe_check_passes_if_a_webhook_endpoint_has_the_needed_events(
    shop: Shop, endpoints: Sequence[dict[str, Any]]
) -> None:
    shop.main.webhook_endpoints = [endpoint(url="https://other.example"), *endpoints]

    assert found_by(shop, "webhooks")[0] is Diagnosis.OK


def test_the_webhook_url_of_the_default_merchant_account_may_include_the_account_name(
    shop: Shop,
) -> None:
    shop.use_keys(KEYS, account=DEFAULT_MERCHANT_ACCOUNT)
    for url in (URL, f"{URL}/default"):
        shop.main.webhook_endpoints = [endpoint(url=url)]
        found = shop.provider.check(DEFAULT_MERCHANT_ACCOUNT, URL)
        assert [each.diagnosis for each in found if each.about == "webhooks"] == [Diagnosis.OK]


@pytest.mark.parametrize(
    ("endpoints", "said"),
    [
        ([], "is missing"),
        ([endpoint(status="disabled")], "is disabled: enable it"),
        ([endpoint(enabled_events=EVENTS[:-1])], f"does not get {EVENTS[-1]}"),
        ([endpoint(enabled_events=[*EVENTS[:2], EVENTS[-1]])], f"does not get {EVENTS[2]}, "),
    ],
    ids=["none", "disabled", "event", "events of cards"],
)
def test_the_stripe_check_reports_a_webhook_endpoint_that_lacks_events(
    shop: Shop, endpoints: list[dict[str, Any]], said: str
) -> None:
    shop.main.webhook_endpoints = endpoints

    diagnosis, text = found_by(shop, "webhooks")
    assert diagnosis is Diagnosis.PROBLEM
    assert f"{URL} {said}" in text


@pytest.mark.parametrize("url", [f"{URL}/", f"{URL}/{MAIN}", URL.rpartition("/")[0]])
def test_the_stripe_check_reports_a_webhook_endpoint_with_a_wrong_address(
    shop: Shop, url: str
) -> None:
    shop.main.webhook_endpoints = [endpoint(url=url)]

    assert found_by(shop, "webhooks") == (
        Diagnosis.PROBLEM,
        (
            f"{url} is not the address of this account: in the dashboard, add {URL}, "
            f"or change the address to {URL}"
        ),
    )


def test_the_stripe_check_says_that_webhooks_to_a_loopback_address_cannot_be_tested(
    shop: Shop,
) -> None:
    diagnosis, text = found_by(shop, "webhooks", "http://127.0.0.1:8000/webhooks/stripe")

    assert diagnosis is Diagnosis.UNKNOWN
    assert "`stripe listen`" in text


@pytest.mark.parametrize(
    ("trouble", "diagnosis", "said"),
    [
        (Trouble.FORBIDDEN, Diagnosis.UNKNOWN, "may not read"),
        (Trouble.UNAUTHORIZED, Diagnosis.PROBLEM, "does not accept the secret key"),
        (Trouble.AWAY, Diagnosis.PROBLEM, "no usable response (APIError, 503)"),
    ],
)
@pytest.mark.parametrize(("call", "about"), [("GET /v1/account", "keys"), (LISTING, "webhooks")])
def test_the_stripe_check_distinguishes_why_stripe_refuses_a_key(
    shop: Shop, call: str, about: str, trouble: Trouble, diagnosis: Diagnosis, said: str
) -> None:
    shop.main.webhook_endpoints = [endpoint()]
    shop.server.have(trouble, call)

    found = found_by(shop, about)
    assert found[0] is diagnosis
    assert said in found[1]
    other = "keys" if about == "webhooks" else "webhooks"
    assert found_by(shop, other)[0] is Diagnosis.OK


@pytest.mark.parametrize(
    ("ahead", "diagnosis", "said"),
    [
        (timedelta(minutes=1), Diagnosis.OK, ""),
        (timedelta(seconds=61), Diagnosis.PROBLEM, "61 seconds ahead of the clock of Stripe"),
        (timedelta(minutes=-3), Diagnosis.PROBLEM, "180 seconds behind the clock of Stripe"),
    ],
)
def test_the_stripe_check_compares_the_clock_with_the_clock_of_stripe(
    shop: Shop, ahead: timedelta, diagnosis: Diagnosis, said: str
) -> None:
    clock = SettableClock(shop.stripe.clock.now().replace(microsecond=0) + ahead)
    shop.use_keys(KEYS, clock)

    found = found_by(shop, "clock")
    assert found[0] is diagnosis
    assert said in found[1]


def test_the_stripe_check_says_whether_the_key_is_for_test_or_live_mode(shop: Shop) -> None:
    shop.stripe.add_merchant("sk_live_shop", "whsec_x")
    keys = {"test": KEYS, "live": replace(KEYS, secret_key="sk_live_shop")}
    for mode, each in keys.items():
        shop.use_keys(each)
        assert f"in {mode} mode" in found_by(shop, "keys")[1]
