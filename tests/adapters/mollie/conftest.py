"""Fixtures: a fake Mollie that listens, and an adapter that calls it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import pytest

from adapters.mollie.provider import MollieKeys, MollieProvider, MollieSettings
from adapters.psp.contract.clock import SettableClock
from adapters.psp.contract.samples import MERCHANT_ACCOUNT, a_page_request
from adapters.psp.http import RetryPolicy
from domain.psps.hosted_page import HostedPageRequest
from tests.fake_mollie.mollie import TEST_KEY, FakeMollie, running

SETTINGS: Final = MollieSettings(
    accounts={MERCHANT_ACCOUNT: MollieKeys(api_key=TEST_KEY, currency="EUR")},
    webhooks_url="https://pay.example/webhooks/mollie",
)


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def mollie(clock: SettableClock) -> Iterator[FakeMollie]:
    with running(clock) as mollie:
        yield mollie


def adapter_for(
    mollie: FakeMollie, clock: SettableClock, settings: MollieSettings = SETTINGS
) -> MollieProvider:
    """Return an adapter for a merchant account of this fake."""
    return MollieProvider(
        replace(settings, api_base=mollie.url),
        clock=clock,
        retry_policy=RetryPolicy(pause_seconds=0),
    )


@pytest.fixture
def provider(mollie: FakeMollie, clock: SettableClock) -> MollieProvider:
    return adapter_for(mollie, clock)


@pytest.fixture
def request_(clock: SettableClock) -> HostedPageRequest:
    return a_page_request(begun_at=clock.now(), avs=False)
