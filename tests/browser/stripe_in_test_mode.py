"""A real Checkout page of Stripe in test mode. Only `make test-stripe` runs this module.

Stripe may rename the fields of the page.
"""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from playwright.sync_api import Browser, Route

from adapters.psp_suite.samples import MERCHANT_ACCOUNT, a_page_request
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from adapters.system import RandomIds, SystemClock
from domain.identifiers import TokenId
from domain.psps.hosted_page import CardCollected, Pending
from tests.adapters.stripe.in_test_mode import api_base, key_of_test_mode
from tests.waiting import LIMIT_SECONDS, wait_until

CARD = "4242424242424242"


def test_a_card_that_was_typed_on_stripe_checkout_can_be_discarded(browser: Browser) -> None:
    keys = StripeKeys(secret_key=key_of_test_mode(), webhook_secrets=("whsec_unused",))
    provider = StripeProvider({MERCHANT_ACCOUNT: keys}, clock=SystemClock(), api_base=api_base())
    now = datetime.now(UTC)
    request = replace(
        a_page_request(begun_at=now, live_until=now + timedelta(minutes=30)),
        token_id=TokenId(RandomIds().uuid()),
        avs=False,
    )
    page = provider.start(request)
    assert provider.outcome(request, page, ()) == Pending()

    def come_back(route: Route) -> None:
        route.fulfill(body="back at the service")

    guest = browser.new_page()
    guest.set_default_timeout(LIMIT_SECONDS * 1000)
    guest.route(re.compile(re.escape(request.return_uri)), come_back)
    guest.goto(page.address)
    for field, typed in (("#cardNumber", CARD), ("#cardExpiry", "12/34"), ("#cardCvc", "123")):
        guest.locator(field).click()
        guest.keyboard.type(typed)
    for field, typed in (("#billingName", "Zoe Null"), ("#billingPostalCode", "98101")):
        if guest.locator(field).is_visible():
            guest.locator(field).click()
            guest.keyboard.type(typed)
    # The request and not its answer: a redirect by HTTP does not reach `come_back`.
    with guest.expect_request(re.compile(re.escape(request.return_uri))):
        guest.get_by_test_id("hosted-payment-submit-button").click()
    guest.close()

    def collected() -> CardCollected | None:
        outcome = provider.outcome(request, page, ())
        return outcome if isinstance(outcome, CardCollected) else None

    card = wait_until(collected).card
    assert (card.card_logo, card.last_four, card.expiry_on) == ("visa", "4242", "12/34")
    for _ in range(2):
        provider.discard(MERCHANT_ACCOUNT, card.guest_reference, card.token)
