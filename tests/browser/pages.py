"""The checks that every page of this project passes in a browser."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, Protocol
from urllib.parse import urlsplit

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import (
    BrowserContext,
    ConsoleMessage,
    Locator,
    Page,
    Request,
    Response,
    ViewportSize,
    WebError,
)

PHONE: Final = ViewportSize(width=390, height=844)
NARROWEST: Final = 320


class OpenPage(Protocol):
    """Opens an empty page in a new browser context. Watches the page like the fixture `page`."""

    def __call__(
        self, *, viewport: ViewportSize | None = None, java_script_enabled: bool = True
    ) -> Page:
        """Open the page, which is closed when the test ends."""


def type_into(field: Locator, text: str) -> None:
    """Replace the text of a field key by key, as a person does.

    `Locator.fill` sets the value at once, so scripts that react to keys would not be tested.
    """
    field.click()
    field.press("ControlOrMeta+a")
    field.press_sequentially(text)


# If a page names no icon, some browsers request /favicon.ico and report that it is missing.
_MISS_ICON: Final = """addEventListener("load", () => {
    const isPage = window === top && location.protocol.startsWith("http")
    if (isPage && !document.querySelector("link[rel=icon]")) console.error("no icon is named")
})"""


class Watch:
    """Collects the problems of the pages in one browser context.

    Problems are errors on the console, such as a violation of the Content-Security-Policy, uncaught
    exceptions, pages that name no icon, and requests to another host than this machine.
    """

    def __init__(self, context: BrowserContext) -> None:
        self.problems: list[str] = []
        self._refused_documents: set[str] = set()
        context.add_init_script(_MISS_ICON)
        context.on("console", self._on_console)
        context.on("request", self._on_request)
        context.on("response", self._on_response)
        context.on("weberror", self._on_web_error)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type != "error":
            return
        address = message.location["url"]
        # The browser also reports a page with the status 404 or 422, which is fine. A missing
        # style sheet, script or picture is not.
        if (
            message.text.startswith("Failed to load resource")
            and address in self._refused_documents
        ):
            return
        self.problems.append(f"console error: {message.text} ({address})")

    def _on_request(self, request: Request) -> None:
        if not _stays_here(request.url):
            self.problems.append(f"request to another host: {request.method} {request.url}")

    def _on_response(self, response: Response) -> None:
        if response.status >= 400 and response.request.is_navigation_request():
            self._refused_documents.add(response.url)

    def _on_web_error(self, web_error: WebError) -> None:
        self.problems.append(f"uncaught exception: {web_error.error}")


def assert_accessible(page: Page) -> None:
    """Check the page as it is now against the default rules of axe."""
    # With this option, axe describes only the elements with violations, which halves the time.
    options = {"resultTypes": ["violations"]}
    response: Mapping[str, Any] = Axe().run(page, options=options).response
    # If no rule passed, axe did not check the page.
    assert response["passes"], f"axe checked nothing on {page.url}"
    violations: Sequence[Mapping[str, Any]] = response["violations"]
    assert not violations, f"axe on {page.url}:\n" + "\n".join(map(_describe, violations))


def assert_fits(page: Page, *widths: int) -> None:
    """Check that the page does not scroll sideways at these widths, or on the narrowest phone."""
    for width in widths or (NARROWEST,):
        page.set_viewport_size(ViewportSize(width=width, height=PHONE["height"]))
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def assert_good(page: Page, color_scheme: Literal["light", "dark"] = "light") -> None:
    """Check that the page fits on the narrowest phone, and is accessible in a color scheme."""
    assert_fits(page)
    page.emulate_media(color_scheme=color_scheme)
    assert_accessible(page)


def _describe(violation: Mapping[str, Any]) -> str:
    lines = [f"- {violation['id']} ({violation['impact']}): {violation['help']}"]
    for node in violation["nodes"]:
        lines.append(f"    {' '.join(map(str, node['target']))}    {node['html']}")
        lines += [
            f"        {check['message']}" for check in node["any"] + node["all"] + node["none"]
        ]
    return "\n".join(lines)


def _stays_here(address: str) -> bool:
    parts = urlsplit(address)
    if parts.scheme in {"about", "blob", "data"}:
        return True
    host = parts.hostname or ""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
