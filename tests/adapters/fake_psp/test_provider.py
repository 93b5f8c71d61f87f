"""Tests of the adapter beyond the contract suite for PSPs (adapters/psp_suite)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.fake_psp.provider import FakeProvider
from adapters.psp_suite.clock import START
from domain.psps.payment_provider import ProviderRefused, ProviderUnavailable
from tests.adapters.fake_psp.conftest import BASE_URL, hosted_page_request, lock

REQUEST = hosted_page_request(avs=True)


def test_a_page_of_the_fake_psp_stays_open_for_at_least_30_minutes(provider: FakeProvider) -> None:
    page = provider.start(replace(REQUEST, live_until=START + timedelta(minutes=15)))

    assert page.address == f"{BASE_URL}/fake-psp/pages/{page.reference}"
    assert page.ends_at == START + timedelta(minutes=30)


def test_reusing_an_idempotency_key_for_a_page_with_other_parameters_is_refused(
    provider: FakeProvider,
) -> None:
    provider.start(REQUEST)

    with pytest.raises(ProviderRefused):
        provider.start(replace(REQUEST, center_name="Another"))


def test_a_locked_database_is_reported_as_an_outage_of_the_psp(
    provider: FakeProvider, database: Path
) -> None:
    page = provider.start(REQUEST)
    other = lock(provider.psp, database)
    with pytest.raises(ProviderUnavailable):
        provider.close(REQUEST, page)
    other.close()
