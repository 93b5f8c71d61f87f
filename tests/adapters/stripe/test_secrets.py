"""Logs, reprs and exceptions contain no key, e-mail address or other value of a call (S18)."""

from __future__ import annotations

import io
import logging
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from datetime import timedelta
from pathlib import Path

import pytest
import stripe
from structlog.testing import capture_logs

from adapters.psp.settings import PspSettingsError
from adapters.psp_suite.clock import START, SettableClock
from adapters.psp_suite.ids import SeededIds
from adapters.psp_suite.samples import MERCHANT_ACCOUNT, a_page_request
from adapters.stripe import plugin
from adapters.stripe.keys import StripeKeys
from adapters.stripe.plugin import StripeSettings
from adapters.stripe.provider import StripeProvider
from domain.psps.payment_provider import FailureDetails, ProviderRefused, ProviderUnavailable
from tests.adapters.stripe.conftest import CALM, HURRIED, KEYS, adapter_for
from tests.fake_stripe.server import SECRETIVE, FakeStripeServer, Trouble
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.programs import ROOT

REQUEST = a_page_request(begun_at=START, live_until=START + timedelta(minutes=30))
FORBIDDEN = (TEST_KEY, TEST_SECRET, "zoe@", "Zoë", "Zoe", SECRETIVE, str(REQUEST.token_id), "cus_")


@pytest.fixture
def output() -> Iterator[io.StringIO]:
    """Collect the standard streams, and the lines of every logger at every level."""
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    with redirect_stderr(output), redirect_stdout(output):
        yield output
    root.setLevel(level)
    root.removeHandler(handler)


# Shows I6.
@pytest.mark.parametrize("trouble", [None, *Trouble])
def test_a_call_to_stripe_does_not_print_or_log_secrets(
    server: FakeStripeServer,
    output: io.StringIO,
    trouble: Trouble | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stripe, "log", "debug")
    provider = adapter_for(server, HURRIED if trouble is Trouble.LOST else CALM)
    text = ""
    if trouble is not None:
        server.have(trouble)
    with capture_logs() as lines:
        try:
            page = provider.start(REQUEST)
            provider.outcome(REQUEST, page, ())
        except (ProviderUnavailable, ProviderRefused) as fault:
            text = "".join(traceback.format_exception(fault)) + repr(fault.details)

    assert (output.getvalue(), lines) == ("", [])
    assert [word for word in FORBIDDEN if word in text] == []


def test_the_log_line_about_a_refusal_contains_what_stripes_support_asks_for(
    server: FakeStripeServer, provider: StripeProvider
) -> None:
    server.have(Trouble.REFUSED)
    with pytest.raises(ProviderRefused) as raised:
        provider.start(REQUEST)

    assert raised.value.details == FailureDetails(
        error="InvalidRequestError",
        status=400,
        code="parameter_invalid",
        param="expires_at",
        request_id="req_00000000000001",
    )


# Shows S18.
def test_the_repr_of_stripe_settings_hides_the_keys(provider: StripeProvider) -> None:
    shown = repr(KEYS) + str(KEYS) + repr(provider) + repr(vars(provider))

    assert TEST_KEY not in shown
    assert TEST_SECRET not in shown


@pytest.mark.parametrize("secret_key", ["", "pk_test_public", "sk_main", "sk_test_x\n"])
def test_the_refusal_of_a_malformed_stripe_key_does_not_show_the_key(secret_key: str) -> None:
    with pytest.raises(ValueError, match="of Stripe") as refused:
        StripeKeys(secret_key=secret_key, webhook_secrets=("whsec_x",))

    assert not secret_key or secret_key not in str(refused.value)


def test_the_stripe_sdk_is_imported_only_when_it_is_used_and_cannot_print_or_write_files(
    server: FakeStripeServer, tmp_path: Path
) -> None:
    """The SDK reads each variable once in a process, so it runs in a separate process."""
    program = (
        "import sys; import entrypoints.cli.main, adapters.stripe.webhooks; "
        "from entrypoints.container import build; from entrypoints.settings import Settings; "
        "build(Settings.read({})); "
        "assert 'stripe' not in sys.modules; "
        "from datetime import timedelta; "
        "from adapters.psp_suite.clock import START, SettableClock; "
        "from adapters.psp_suite.ids import SeededIds; "
        "from adapters.psp_suite.samples import MERCHANT_ACCOUNT, a_page_request; "
        "from adapters.stripe.keys import StripeKeys; "
        "from adapters.stripe.plugin import StripeSettings, make; "
        f"keys = StripeKeys(secret_key={TEST_KEY!r}, webhook_secrets=({TEST_SECRET!r},)); "
        "accounts = {MERCHANT_ACCOUNT: keys}; "
        f"settings = StripeSettings(accounts=accounts, api_base={server.url!r}); "
        "provider = make(settings, SettableClock(), SeededIds()); "
        "provider.start(a_page_request(begun_at=START, live_until=START + timedelta(minutes=30)))"
    )
    environment = {**os.environ, "STRIPE_LOG": "debug", "XDG_CONFIG_HOME": str(tmp_path)}
    ended = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=False
    )

    assert (ended.returncode, ended.stdout, ended.stderr) == (0, b"", b"")
    assert list(tmp_path.iterdir()) == []


def test_a_stripe_sdk_with_logging_enabled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STRIPE_LOG", "debug")

    with pytest.raises(PspSettingsError, match="unset STRIPE_LOG"):
        plugin.make(StripeSettings(accounts={MERCHANT_ACCOUNT: KEYS}), SettableClock(), SeededIds())
