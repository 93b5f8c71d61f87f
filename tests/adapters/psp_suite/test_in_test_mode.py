"""Runs what `make test-stripe` and `make test-mollie` do with their keys, on the fakes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from adapters.psp_suite.samples import MERCHANT_ACCOUNT, a_page_request
from adapters.psp_suite.under_test import PspUnderTest
from adapters.system import SystemClock
from domain.psps.hosted_page import Pending
from tests.adapters.mollie.in_test_mode import MollieInTestMode
from tests.adapters.stripe.in_test_mode import StripeInTestMode
from tests.fake_mollie import mollie
from tests.fake_stripe import server as stripe
from tests.fake_stripe.stripe import TEST_KEY


@pytest.mark.parametrize(
    ("psp", "live_key"), [(StripeInTestMode, "sk_live_main"), (MollieInTestMode, "live_main")]
)
def test_tests_in_the_psps_test_mode_refuse_a_live_key(
    psp: type[PspUnderTest], live_key: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"CARDONFILE_{psp.plugin.name.upper()}_TEST_KEY", live_key)
    with pytest.raises(AssertionError, match="no key of test mode"):
        psp(tmp_path)


# Any: each fake has a type of its own.
@pytest.mark.parametrize(
    ("psp", "key", "running"),
    [
        (StripeInTestMode, TEST_KEY, stripe.running),
        (MollieInTestMode, mollie.TEST_KEY, mollie.running),
    ],
)
def test_the_psp_contract_suite_can_run_without_a_stand_in_server(
    psp: type[PspUnderTest],
    key: str,
    running: Callable[[SystemClock], AbstractContextManager[Any]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with running(SystemClock()) as fake:
        name = f"CARDONFILE_{psp.plugin.name.upper()}"
        monkeypatch.setenv(f"{name}_TEST_KEY", key)
        monkeypatch.setenv(f"{name}_API_BASE", fake.url)
        in_test_mode = psp(tmp_path)
        now = in_test_mode.clock.now()
        request = a_page_request(begun_at=now, live_until=now + timedelta(minutes=30))
        page = in_test_mode.adapter().start(request)
        evidence = in_test_mode.evidence(page)

        assert in_test_mode.adapter().outcome(request, page, evidence) == Pending()
        in_test_mode.forget_guest(MERCHANT_ACCOUNT, page.guest_reference)
        calls = fake.server.calls

    assert calls[-1].startswith("DELETE ")
    assert page.guest_reference in calls[-1]
