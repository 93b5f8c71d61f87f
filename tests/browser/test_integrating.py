"""The example for browsers in docs/integrating.md, run in one from the page."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page

PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "integrating.md"
SHOP: Final = "http://127.0.0.1:1"
END_WAITS: Final = """
    window.waits = []
    window.setTimeout = (go, milliseconds) => { waits.push(milliseconds); go() }
"""


@pytest.mark.parametrize(
    ("answers", "state", "seconds"),
    [(["added"], "added", 0), (["checking", "none"], "none", 3), (["checking"] * 20, "later", 60)],
)
def test_the_browser_polls_the_server_of_the_client_for_at_most_a_minute(
    page: Page, answers: list[str], state: str, seconds: int
) -> None:
    (example,) = re.findall(r"(?ms)^```javascript\n(.*?)^```$", PAGE.read_text())
    left = list(answers)
    back = '<link rel="icon" href="data:,">Back'
    page.route(f"{SHOP}/back", lambda route: route.fulfill(content_type="text/html", body=back))
    page.route(f"{SHOP}/card/state", lambda route: route.fulfill(json={"state": left.pop(0)}))
    page.goto(f"{SHOP}/back")

    assert page.evaluate(f"{END_WAITS}\n{example}\ncardState()") == state
    assert sum(page.evaluate("waits")) == seconds * 1000
    assert left == []
