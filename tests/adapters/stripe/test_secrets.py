"""No key, no e-mail address and nothing else of a call in a log, a repr or an exception (S18)."""

from __future__ import annotations

import io
import logging
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest
import stripe
from structlog.testing import capture_logs

from adapters.psp.contract.clock import START
from adapters.psp.contract.samples import a_page_request
from adapters.stripe.keys import StripeKeys
from adapters.stripe.provider import StripeProvider
from domain.identifiers import MerchantAccount
from domain.ports import FailureDetails, ProviderRefused, ProviderUnavailable
from tests.adapters.stripe.conftest import HURRIED, KEYS, adapter_for
from tests.fake_stripe.server import SECRETIVE, FakeStripeServer, Trouble
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET

ROOT = Path(__file__).resolve().parents[3]
REQUEST = a_page_request(begun_at=START, live_until=START + timedelta(minutes=30))
FORBIDDEN = (TEST_KEY, TEST_SECRET, "zoe@", "Zoë", "Zoe", SECRETIVE, str(REQUEST.token_id), "cus_")


@pytest.fixture
def said() -> Iterator[io.StringIO]:
    """Collect what anything says anywhere: standard streams, and loggers at every level."""
    said = io.StringIO()
    handler = logging.StreamHandler(said)
    root = logging.getLogger()
    level = root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    with redirect_stderr(said), redirect_stdout(said):
        yield said
    root.setLevel(level)
    root.removeHandler(handler)


@pytest.mark.parametrize("trouble", [None, *Trouble])
def test_a_call_says_nothing(
    server: FakeStripeServer,
    hurried: StripeProvider,
    said: io.StringIO,
    trouble: Trouble | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As if somebody had set STRIPE_LOG=debug before the SDK was imported.
    monkeypatch.setattr(stripe._util, "STRIPE_LOG", "debug")
    provider = adapter_for(server) if trouble is None else hurried
    text = ""
    provider = StripeProvider(
        provider._accounts,
        clock=provider._clock,
        api_base=server.url,
        retry_policy=provider._retry_policy,
    )
    if trouble is not None:
        server.have(trouble)
    with capture_logs() as lines:
        try:
            page = provider.start(REQUEST)
            provider.outcome(REQUEST, page, ())
        except (ProviderUnavailable, ProviderRefused) as fault:
            text = "".join(traceback.format_exception(fault)) + repr(fault.details)
    everything = said.getvalue() + text + repr(lines)
    assert said.getvalue() == ""
    assert [word for word in FORBIDDEN if word in everything] == []
    assert lines == []


def test_a_failed_call_is_told_with_what_stripes_support_asks_for(
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


def test_why_there_was_no_answer_is_told_by_its_kind(server: FakeStripeServer) -> None:
    without_tls = server.url.replace("http:", "https:")
    provider = StripeProvider(
        {REQUEST.merchant_account: KEYS},
        clock=server.stripe.clock,
        api_base=without_tls,
        retry_policy=HURRIED,
    )
    with pytest.raises(ProviderUnavailable) as raised:
        provider.start(REQUEST)
    assert raised.value.details == FailureDetails(error="SSLError")
    assert server.calls == []


def test_an_account_without_keys_is_told(provider: StripeProvider) -> None:
    unknown = MerchantAccount("unknown")
    with pytest.raises(ProviderUnavailable) as raised:
        provider.start(replace(REQUEST, merchant_account=unknown))
    assert raised.value.details == FailureDetails(error="NoKeys")


def test_no_repr_shows_a_key(provider: StripeProvider) -> None:
    shown = repr(KEYS) + str(KEYS) + repr(provider) + repr(vars(provider))
    assert TEST_KEY not in shown
    assert TEST_SECRET not in shown


@pytest.mark.parametrize(
    ("secret_key", "webhook_secrets"),
    [
        ("", ("whsec_x",)),
        ("pk_test_public", ("whsec_x",)),
        ("sk_main", ("whsec_x",)),
        ("sk_test_x\n", ("whsec_x",)),
        ("sk_test_x", ()),
        ("sk_test_x", ("",)),
        ("sk_test_x", ("whsec_x", "  ")),
    ],
)
def test_keys_of_another_form_refuse_to_be_used_and_are_not_repeated(
    secret_key: str, webhook_secrets: tuple[str, ...]
) -> None:
    with pytest.raises(ValueError, match=r"of Stripe|secret is empty") as refused:
        StripeKeys(secret_key=secret_key, webhook_secrets=webhook_secrets)
    assert not secret_key or secret_key not in str(refused.value)


@pytest.mark.parametrize("prefix", ["sk", "rk"])
def test_the_mode_is_in_the_key(prefix: str) -> None:
    for mode, is_live in (("test", False), ("live", True)):
        keys = StripeKeys(secret_key=f"{prefix}_{mode}_x", webhook_secrets=("whsec_x",))
        assert keys.is_live is is_live


def test_the_sdk_leaves_nothing_in_the_home_folder(
    provider: StripeProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    provider.start(REQUEST)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_only_the_provider_imports_the_sdk() -> None:
    program = (
        "import sys; import entrypoints.cli, entrypoints.container, adapters.stripe.webhooks; "
        "from entrypoints.container import build; from entrypoints.settings import Settings; "
        "build(Settings.read({})); "
        "assert 'stripe' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)
