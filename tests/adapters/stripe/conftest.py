"""Fixtures: a fake Stripe that listens, and an adapter that calls it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

import pytest

from adapters.psp.http import RetryPolicy
from adapters.psp_suite.clock import START, SettableClock
from adapters.psp_suite.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp_suite.samples import a_page_request
from adapters.psp_suite.stand_in import change
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from domain.identifiers import MerchantAccount
from domain.psps.evidence import Evidence
from domain.psps.hosted_page import HostedPage, Outcome
from tests.fake_stripe.server import FakeStripeServer, running
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.waiting import LIMIT_SECONDS

OTHER: Final = MerchantAccount("other")
OTHER_KEY: Final = "sk_test_other"
OTHER_SECRET: Final = "whsec_other"
KEYS: Final = StripeKeys(secret_key=TEST_KEY, webhook_secrets=(TEST_SECRET,))
OTHER_KEYS: Final = StripeKeys(secret_key=OTHER_KEY, webhook_secrets=(OTHER_SECRET,))

REQUEST: Final = a_page_request(begun_at=START, live_until=START + timedelta(minutes=30))

GOOD: Final = "4242424242424242"
PREPAID: Final = "5105105105105100"
DECLINED: Final = "4000000000000002"
CHALLENGED: Final = "4000002500003155"
WRONG_ADDRESS: Final = "4000000000000010"

HURRIED: Final = RetryPolicy(total_seconds=0.3, connect_seconds=0.3, pause_seconds=0)
"""For calls without a response."""
CALM: Final = RetryPolicy(
    total_seconds=LIMIT_SECONDS, connect_seconds=LIMIT_SECONDS, pause_seconds=0
)
"""For calls with a response, also on a busy machine."""


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def server(clock: SettableClock) -> Iterator[FakeStripeServer]:
    with running(clock) as started:
        started.stripe.add_merchant(OTHER_KEY, OTHER_SECRET)
        yield started


def adapter_for(server: FakeStripeServer, retry_policy: RetryPolicy = CALM) -> StripeProvider:
    """Return an adapter for two merchant accounts of this fake."""
    return StripeProvider(
        {MAIN: KEYS, OTHER: OTHER_KEYS},
        clock=server.stripe.clock,
        api_base=server.url,
        retry_policy=retry_policy,
    )


@pytest.fixture
def provider(server: FakeStripeServer) -> StripeProvider:
    return adapter_for(server)


class Shop:
    """A merchant at a fake Stripe, with the adapter."""

    def __init__(self, server: FakeStripeServer, clock: SettableClock) -> None:
        self.server, self.stripe, self.main = server, server.stripe, server.stripe.main
        self.clock = clock
        self.provider = adapter_for(server)

    def use_keys(
        self, keys: StripeKeys, clock: SettableClock | None = None, account: MerchantAccount = MAIN
    ) -> None:
        """Give the adapter other keys, and another clock or merchant account if given."""
        self.provider = StripeProvider(
            {account: keys}, clock=clock or self.clock, api_base=self.server.url, retry_policy=CALM
        )

    # Any: `changes` are fields of the request, of any type.
    def start(self, **changes: Any) -> HostedPage:
        """Start the page of the request, changed by `changes`."""
        return self.provider.start(replace(REQUEST, **changes))

    def page_with_card(self) -> HostedPage:
        """Start the page, and submit a card there."""
        page = self.start()
        self.stripe.submit_card(page.reference, GOOD)
        return page

    def outcome(self, page: HostedPage, evidence: Sequence[Evidence] = ()) -> Outcome:
        """Return the outcome of the page."""
        return self.provider.outcome(REQUEST, page, evidence)

    def session(self) -> dict[str, Any]:
        """Return Stripe's record of the only page."""
        (session,) = self.main.sessions.values()
        return session

    def customer(self) -> dict[str, Any]:
        """Return Stripe's record of the only customer."""
        (customer,) = self.main.customers.values()
        return customer

    def answered_with(self, body: bytes) -> None:
        """Let Stripe respond to every call with this body."""
        self.server.server.have(change(lambda sound: replace(sound, body=body)))


@pytest.fixture
def shop(server: FakeStripeServer, clock: SettableClock) -> Shop:
    return Shop(server, clock)
