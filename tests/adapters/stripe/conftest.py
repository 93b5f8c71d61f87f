"""Fixtures: a fake Stripe that listens, and an adapter that calls it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import pytest

from adapters.psp.contract.clock import SettableClock
from adapters.psp.contract.samples import MERCHANT_ACCOUNT as MAIN
from adapters.psp.http import RetryPolicy
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from domain.identifiers import MerchantAccount
from tests.fake_stripe.server import FakeStripeServer, running
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET

OTHER: Final = MerchantAccount("other")
OTHER_KEY: Final = "sk_test_other"
OTHER_SECRET: Final = "whsec_other"
KEYS: Final = StripeKeys(secret_key=TEST_KEY, webhook_secrets=(TEST_SECRET,))
OTHER_KEYS: Final = StripeKeys(secret_key=OTHER_KEY, webhook_secrets=(OTHER_SECRET,))

GOOD: Final = "4242424242424242"
DECLINED: Final = "4000000000000002"
CHALLENGED: Final = "4000002500003155"
WRONG_ADDRESS: Final = "4000000000000010"

HURRIED: Final = RetryPolicy(total_seconds=0.3, connect_seconds=0.3, pause_seconds=0)
"""For calls without a response."""
CALM: Final = RetryPolicy(total_seconds=20, connect_seconds=20, pause_seconds=0)
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
