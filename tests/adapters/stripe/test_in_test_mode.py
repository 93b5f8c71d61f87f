"""What `make test-stripe` does with its key and its customers, on the fake Stripe."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from adapters.psp.contract.samples import MERCHANT_ACCOUNT
from domain.identifiers import GuestReference
from tests.adapters.stripe.in_test_mode import KEY_SETTING, StripeInTestMode
from tests.fake_stripe.server import FakeStripeServer
from tests.fake_stripe.stripe import TEST_KEY


def test_a_live_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_SETTING, "sk_live_main")
    with pytest.raises(AssertionError, match="no key of test mode"):
        StripeInTestMode(tmp_path)


def test_the_contract_suite_logs_no_customer_that_it_deletes(
    server: FakeStripeServer,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(KEY_SETTING, TEST_KEY)
    monkeypatch.setenv("CARDONFILE_STRIPE_API_BASE", server.url)
    caplog.set_level(logging.DEBUG)
    customer = GuestReference(server.stripe.create_customer(server.stripe.main, {})["id"])

    StripeInTestMode(tmp_path).forget_guest(MERCHANT_ACCOUNT, customer)

    assert server.stripe.main.customers[customer]["deleted"]
    assert customer not in caplog.text
