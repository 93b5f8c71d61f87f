from __future__ import annotations

import sys

import pytest
from playwright.sync_api import Playwright

from tests.browser.chromium import ChromiumUnavailable, start_chromium


@pytest.mark.parametrize("named", ["/nowhere/chromium", sys.executable], ids=["missing", "other"])
def test_a_named_chromium_that_does_not_start_is_refused_with_the_command_to_run(
    named: str, playwright: Playwright, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CHROMIUM", named)
    told: list[str] = []

    with pytest.raises(ChromiumUnavailable) as refusal:
        start_chromium(playwright.chromium, tell=told.append)

    assert f"{named} does not start" in str(refusal.value)
    assert "CHROMIUM=/usr/bin/chromium make test" in str(refusal.value)
    assert told == [], "no other source may be tried"
