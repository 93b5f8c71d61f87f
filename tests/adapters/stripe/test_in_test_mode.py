"""What `make test-stripe` does with its key and its customers, on the fake Stripe."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest

from adapters.psp_suite.samples import MERCHANT_ACCOUNT, a_page_request
from adapters.system import SystemClock
from domain.identifiers import GuestReference
from domain.psps.hosted_page import Pending
from tests.adapters.stripe.in_test_mode import KEY_SETTING, StripeInTestMode
from tests.fake_stripe.server import FakeStripeServer, running
from tests.fake_stripe.stripe import TEST_KEY


def test_a_live_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_SETTING, "sk_live_main")
    with pytest.raises(AssertionError, match="no key of test mode"):
        StripeInTestMode(tmp_path)


@pytest.fixture
def server() -> Iterator[FakeStripeServer]:
    with running(SystemClock()) as server:
        yield server


@pytest.fixture
def in_test_mode(
    server: FakeStripeServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> StripeInTestMode:
    monkeypatch.setenv(KEY_SETTING, TEST_KEY)
    monkeypatch.setenv("CARDONFILE_STRIPE_API_BASE", server.url)
    return StripeInTestMode(tmp_path)


def test_the_contract_suite_asks_for_a_page_without_a_stand_in(
    in_test_mode: StripeInTestMode,
) -> None:
    now = in_test_mode.clock.now()
    request = a_page_request(begun_at=now, live_until=now + timedelta(minutes=30))
    page = in_test_mode.adapter().start(request)

    evidence = in_test_mode.evidence(page)

    assert in_test_mode.adapter().outcome(request, page, evidence) == Pending()


def test_the_contract_suite_logs_no_customer_that_it_deletes(
    server: FakeStripeServer, in_test_mode: StripeInTestMode, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    customer = GuestReference(server.stripe.create_customer(server.stripe.main, {})["id"])

    in_test_mode.forget_guest(MERCHANT_ACCOUNT, customer)

    assert server.stripe.main.customers[customer]["deleted"]
    assert customer not in caplog.text
