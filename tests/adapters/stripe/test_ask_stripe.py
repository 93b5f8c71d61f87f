"""What `make test-stripe` runs, on the fake Stripe."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from adapters.psp.contract.samples import MERCHANT_ACCOUNT
from adapters.system.clock import SystemClock
from domain.identifiers import GuestReference
from tests.adapters.stripe.ask_stripe import main
from tests.adapters.stripe.in_test_mode import KEY_SETTING, StripeInTestMode
from tests.fake_stripe.server import FakeStripeServer, Trouble, running
from tests.fake_stripe.stripe import TEST_KEY


@pytest.fixture
def stripe(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStripeServer]:
    with running(SystemClock()) as server:
        monkeypatch.setenv(KEY_SETTING, TEST_KEY)
        monkeypatch.setenv("CARDONFILE_STRIPE_API_BASE", server.url)
        yield server


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Return each row of the table by its call; nothing else was printed."""
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    width = lines[0].index("STRIPE DID")
    return {line[:width].strip(): " ".join(line[width:].split()) for line in lines}


def test_the_fake_stripe_does_what_the_adapter_relies_on(
    stripe: FakeStripeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main() == 0
    table = printed(capsys)
    assert len(table) > 25
    assert not any(row.endswith("DIFFERS") for row in table.values())
    assert table["its payment_method_types"] == "card card ok"
    assert table["whose key it is"] == "acct_main test - to know"
    assert not [each for each in stripe.stripe.main.customers.values() if not each.get("deleted")]


def test_a_result_that_differs_is_marked(
    stripe: FakeStripeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    stripe.stripe.main.offered = ("us_bank_account",)
    assert main() == 1
    table = printed(capsys)
    assert table["its payment_method_types"] == "card DIFFERS"
    assert table["to set pm_card_visa up"].endswith("ok")


@pytest.mark.parametrize("trouble", [Trouble.UNAUTHORIZED, Trouble.NONSENSE])
def test_an_outage_ends_it_without_a_traceback(
    stripe: FakeStripeServer, capsys: pytest.CaptureFixture[str], trouble: Trouble
) -> None:
    stripe.have(trouble)
    assert main() == 1
    assert printed(capsys)["what everything else needs"].endswith("DIFFERS")


def test_a_live_key_is_refused(stripe: FakeStripeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_SETTING, "sk_live_main")
    with pytest.raises(AssertionError, match="no key of test mode"):
        main()
    assert stripe.calls == []


def test_the_contract_suite_logs_no_customer_that_it_deletes(
    stripe: FakeStripeServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    customer = GuestReference(stripe.stripe.create_customer(stripe.stripe.main, {})["id"])

    StripeInTestMode(tmp_path).forget_guest(MERCHANT_ACCOUNT, customer)

    assert stripe.stripe.main.customers[customer]["deleted"]
    assert customer not in caplog.text
