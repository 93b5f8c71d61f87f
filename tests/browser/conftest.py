"""The browser that the tests in this folder share, and a fresh page for each test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from playwright.sync_api import (
    Browser,
    BrowserContext,
    Page,
    Playwright,
    ViewportSize,
    expect,
    sync_playwright,
)

from tests.browser.chromium import Tell, prepare_driver, start_chromium
from tests.browser.pages import OpenPage, Watch
from tests.browser.served import serving
from tests.installation import Installation
from tests.waiting import LIMIT_SECONDS

# Playwright's own limits, of 5 and 30 seconds, are too short for a slow machine.
expect.set_options(timeout=LIMIT_SECONDS * 1000)


@pytest.fixture(scope="session")
def tell(pytestconfig: pytest.Config) -> Tell:
    """Return a function that prints a line at once, because a download may take minutes."""
    capture = pytestconfig.pluginmanager.getplugin("capturemanager")

    def tell(line: str) -> None:
        with ExitStack() as stack:
            if capture:
                stack.enter_context(capture.global_and_fixture_disabled())
            sys.stderr.write(f"\n{line}\n")
            sys.stderr.flush()

    return tell


@pytest.fixture(scope="session")
def playwright(tell: Tell) -> Iterator[Playwright]:
    """Playwright, which runs for the whole session."""
    prepare_driver(tell=tell)
    with sync_playwright() as running:
        yield running


@pytest.fixture(scope="session")
def browser(playwright: Playwright, tell: Tell) -> Iterator[Browser]:
    """A real Chromium, which is started once. Without a browser, every test that needs it fails."""
    started = start_chromium(playwright.chromium, tell=tell)
    started.on("context", _wait_as_long_as_other_tests)
    with started:
        yield started


def _wait_as_long_as_other_tests(context: BrowserContext) -> None:
    context.set_default_timeout(LIMIT_SECONDS * 1000)


@pytest.fixture
def open_page(browser: Browser) -> Iterator[OpenPage]:
    """Open pages, each in a separate context. The test fails if a page misbehaved."""
    watches: list[Watch] = []
    with ExitStack() as contexts:

        def open_page(
            *, viewport: ViewportSize | None = None, java_script_enabled: bool = True
        ) -> Page:
            context = contexts.enter_context(
                browser.new_context(viewport=viewport, java_script_enabled=java_script_enabled)
            )
            watches.append(Watch(context))
            return context.new_page()

        yield open_page
    problems = [problem for watch in watches for problem in watch.problems]
    if problems:
        pytest.fail("The page misbehaved:\n" + "\n".join(problems), pytrace=False)


@pytest.fixture
def page(open_page: OpenPage) -> Page:
    """An empty page in a fresh context. The test fails if the page misbehaved."""
    return open_page()


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Installation]:
    """An installation that browsers reach."""
    with serving(tmp_path) as installed:
        yield installed
