"""With keys of another merchant, no call is made and nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.samples import GUEST_ID
from adapters.stripe.plugin import NAME as STRIPE
from domain.psps.payment_provider import ProviderUnavailable
from domain.sessions.end import SessionStatus
from domain.sessions.polling import ASK_AGAIN_AFTER
from domain.sessions.session import CardSession
from tests.fake_stripe.server import FakeStripeServer, Trouble, running
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, Installation

SAME_ACCOUNT: Final = "rk_test_main"
LIVE_MODE: Final = "sk_live_main"
SILENT: Final = "rk_test_silent"
"""A key of another account, without the permission to read that account."""


@pytest.fixture
def stripe() -> Iterator[FakeStripeServer]:
    with running(SettableClock()) as server:
        for key in (LIVE_MODE, SILENT):
            server.stripe.add_merchant(key, TEST_SECRET)
        server.stripe.merchants[SAME_ACCOUNT] = server.stripe.main
        yield server


@contextmanager
def process_with(
    key: str, folder: Path, stripe: FakeStripeServer, *, before: Installation | None = None
) -> Iterator[Installation]:
    """Run a process with this key, on the records of the previous process."""
    # Any: settings by name.
    records: Any = (
        {} if before is None else {"CARDONFILE_DATABASE_URL": f"sqlite:///{before.database}"}
    )
    fresh = folder / key
    fresh.mkdir()
    installation = Installation(
        fresh,
        # The ids continue, so that no id occurs twice in the records.
        ids=None if before is None else before.ids,
        CARDONFILE_STRIPE_SECRET_KEY=key,
        CARDONFILE_STRIPE_WEBHOOK_SECRETS=TEST_SECRET,
        CARDONFILE_STRIPE_API_BASE=stripe.url,
        **records,
    )
    installation.configure(provider=STRIPE)
    if before is not None:
        installation.clock.advance(before.clock.now() - installation.clock.now())
    stripe.stripe.clock = installation.clock
    try:
        yield installation
    finally:
        installation.close()


def typed(installation: Installation, stripe: FakeStripeServer, number: str) -> CardSession:
    """Let a guest type a card at Stripe and close the browser."""
    session = installation.add_card()
    reference = urlsplit(installation.open_page(session)).path.rpartition("/")[2]
    stripe.stripe.submit_card(reference, number)
    return session


def attached(stripe: FakeStripeServer) -> int:
    """Count the cards that can be charged at the first merchant."""
    return sum(each["customer"] is not None for each in stripe.stripe.main.methods.values())


@pytest.mark.parametrize("wrong_key", [LIVE_MODE, SILENT])
def test_work_waits_and_is_not_lost_while_the_psp_keys_belong_to_another_merchant(
    tmp_path: Path, stripe: FakeStripeServer, wrong_key: str
) -> None:
    with process_with(TEST_KEY, tmp_path, stripe) as first:
        first.return_to_shop(typed(first, stripe, GOOD_CARD))
        (account,) = first.accounts()
        first.use_cases.remove_account(
            first.caller, guest_id=GUEST_ID, account_id=account.account_id
        )
        under_way = typed(first, stripe, OTHER_GOOD_CARD)
        unopened = first.add_card()
        stripe.calls.clear()

        with process_with(wrong_key, tmp_path, stripe, before=first) as wrong:
            if wrong_key == SILENT:
                stripe.have(Trouble.FORBIDDEN, "^GET /v1/account$")
            with capture_logs() as lines:
                wrong.reconcile()
                wrong.return_to_shop(under_way)
                with pytest.raises(ProviderUnavailable):
                    wrong.open_page(unopened)
            assert wrong.session(under_way.token_id).status is SessionStatus.OPEN
            (line,) = [each for each in lines if each["event"] == "psp_keys_of_another_merchant"]
            assert (line["log_level"], line["kept"]) == ("error", "acct_main test")
            assert "configure-payments" in line["do"]
        stripe.recover()
        assert stripe.calls == ["GET /v1/account"]
        assert attached(stripe) == 2

        with process_with(SAME_ACCOUNT, tmp_path, stripe, before=first) as right:
            right.clock.advance(right.session(under_way.token_id).expires_at - right.clock.now())
            right.reconcile()
            assert right.session(under_way.token_id).status is SessionStatus.COMPLETED
            (account,) = right.accounts()
            assert account.last_four == OTHER_GOOD_CARD[-4:]
        assert attached(stripe) == 1


def test_each_process_reads_the_merchant_account_from_the_psp_once(
    tmp_path: Path, stripe: FakeStripeServer
) -> None:
    with process_with(TEST_KEY, tmp_path, stripe) as installation:
        installation.add_card()
        assert stripe.calls == []
        for number in (GOOD_CARD, OTHER_GOOD_CARD):
            installation.return_to_shop(typed(installation, stripe, number))
        assert len(installation.accounts()) == 2
    assert stripe.calls.count("GET /v1/account") == 1


def test_a_key_without_permission_to_read_its_merchant_account_causes_one_warning(
    tmp_path: Path, stripe: FakeStripeServer
) -> None:
    stripe.have(Trouble.FORBIDDEN, "^GET /v1/account$")
    with process_with(TEST_KEY, tmp_path, stripe) as installation, capture_logs() as lines:
        for number in (GOOD_CARD, OTHER_GOOD_CARD):
            installation.return_to_shop(typed(installation, stripe, number))
        assert len(installation.accounts()) == 2
    warnings = [each for each in lines if each["event"] == "stripe_account_unknown"]
    assert [(each["log_level"], each["account"]) for each in warnings] == [("warning", "default")]


def test_work_waits_while_the_merchant_account_cannot_be_read_from_the_psp(
    tmp_path: Path, stripe: FakeStripeServer
) -> None:
    stripe.have(Trouble.AWAY, "^GET /v1/account$")
    with process_with(TEST_KEY, tmp_path, stripe) as installation:
        session = installation.add_card()
        with pytest.raises(ProviderUnavailable):
            installation.open_page(session)
        stripe.recover()
        installation.clock.advance(ASK_AGAIN_AFTER)
        assert installation.open_page(session)
