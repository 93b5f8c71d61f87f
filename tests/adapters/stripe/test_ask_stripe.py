"""That `make test-stripe` tells what Stripe does, and what is not as the adapter has it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from adapters.system.clock import SystemClock
from tests.adapters.stripe.ask_stripe import main
from tests.adapters.stripe.in_test_mode import KEY_SETTING
from tests.fake_stripe.server import FakeStripeServer, Trouble, running
from tests.fake_stripe.stripe import TEST_KEY


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeStripeServer]:
    with running(SystemClock()) as server:
        monkeypatch.setenv(KEY_SETTING, TEST_KEY)
        monkeypatch.setenv("CARDONFILE_STRIPE_API_BASE", server.url)
        yield server


def printed(capsys: pytest.CaptureFixture[str]) -> dict[str, str]:
    """Give the rest of each line of the table by what was asked; nothing else was printed."""
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    width = lines[0].index("STRIPE DID")
    return {line[:width].strip(): " ".join(line[width:].split()) for line in lines}


def test_the_fake_stripe_does_what_the_adapter_relies_on(
    asked: FakeStripeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main() == 0
    table = printed(capsys)
    assert len(table) > 25
    assert not any(row.endswith("DIFFERS") for row in table.values())
    assert table["its payment_method_types"] == "card card ok"
    assert table["whose key it is"] == "acct_main test - to know"
    assert not [each for each in asked.stripe.main.customers.values() if not each.get("deleted")]


def test_what_stripe_does_otherwise_is_told(
    asked: FakeStripeServer, capsys: pytest.CaptureFixture[str]
) -> None:
    asked.stripe.main.offered = ("us_bank_account",)
    assert main() == 1
    table = printed(capsys)
    assert table["its payment_method_types"] == "card DIFFERS"
    assert table["the adapter: to make a page"] == "ProviderRefused HostedPage DIFFERS"
    assert table["to set pm_card_visa up"].endswith("ok")


@pytest.mark.parametrize("trouble", [Trouble.UNAUTHORIZED, Trouble.NONSENSE])
def test_a_stripe_that_cannot_be_asked_ends_it_without_a_traceback(
    asked: FakeStripeServer, capsys: pytest.CaptureFixture[str], trouble: Trouble
) -> None:
    asked.have(trouble)
    assert main() == 1
    assert printed(capsys)["what everything else needs"].endswith("DIFFERS")


def test_a_live_key_is_refused(asked: FakeStripeServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_SETTING, "sk_live_main")
    with pytest.raises(AssertionError, match="no key of test mode"):
        main()
    assert asked.calls == []
