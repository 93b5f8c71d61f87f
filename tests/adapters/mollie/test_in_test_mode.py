"""What `make test-mollie` does with its key, on the fake Mollie."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from adapters.psp_suite.samples import MERCHANT_ACCOUNT, a_page_request
from adapters.system import SystemClock
from domain.psps.hosted_page import Pending
from tests.adapters.mollie.in_test_mode import KEY_SETTING, MollieInTestMode
from tests.fake_mollie.mollie import TEST_KEY, running


def test_a_live_key_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(KEY_SETTING, "live_main")
    with pytest.raises(AssertionError, match="no key of test mode"):
        MollieInTestMode(tmp_path)


def test_the_contract_suite_needs_no_stand_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(SystemClock()) as mollie:
        monkeypatch.setenv(KEY_SETTING, TEST_KEY)
        monkeypatch.setenv("CARDONFILE_MOLLIE_API_BASE", mollie.url)
        psp = MollieInTestMode(tmp_path)
        now = psp.clock.now()
        request = a_page_request(begun_at=now, live_until=now + timedelta(minutes=30))
        page = psp.adapter().start(request)

        assert psp.adapter().outcome(request, page, psp.evidence(page)) == Pending()
        psp.forget_guest(MERCHANT_ACCOUNT, page.guest_reference)

    assert page.guest_reference in mollie.main.gone
