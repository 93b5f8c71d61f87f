"""A visitor tries out requests in `/docs`."""

from __future__ import annotations

import re

from playwright.sync_api import Locator, Page, expect

from domain.identifiers import TokenId
from entrypoints.demo.sample import store_sample
from tests.browser.pages import PHONE, OpenPage, assert_fits
from tests.browser.served import address_of
from tests.installation import Installation

NARROWEST_CELL = """each => Math.min(
    ...Array.from(each.querySelectorAll("tbody .response-col_description"), cell => cell.clientWidth)
)"""


def execute(page: Page, operation: str) -> Locator:
    """Send the example of an operation unchanged, and return the response."""
    block = page.locator(f"#operations-{operation}")
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Execute").click()
    return block.locator(".live-responses-table .response")


def test_a_visitor_can_try_out_requests_in_the_api_docs_on_a_phone(
    served: Installation, open_page: OpenPage
) -> None:
    # The records to which the examples refer.
    store_sample(served.storage)
    token = served.token_for(served.caller)
    # Another origin than the public base URL: requests must go to where the page came from.
    origin = address_of(served, "").replace("127.0.0.1", "localhost")
    page, requests = open_page(viewport=PHONE), list[str]()
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{origin}/docs#token={token}")
    expect(page.get_by_text("From a token to a card on file")).to_be_visible()
    expect(page).to_have_url(f"{origin}/docs")
    groups = page.locator("h3.opblock-tag")
    names = ("Cards", "Sessions", "Guests", "Centers", "Products", "Events", "Service")
    expect(groups).to_have_text([re.compile(f"^{name}") for name in names])
    # Clients call nothing of the last one.
    expect(page.locator("#operations-Service-openHostedPage")).to_have_count(0)
    groups.last.click()
    expect(page.locator("#operations-Service-openHostedPage")).to_be_visible()

    # The token of the address counts until the visitor enters another token.
    added = execute(page, "Cards-addCard")
    expect(added).to_contain_text(address_of(served, "/hosted-payments?token_id="))
    (token_id,) = re.findall(r'"token_id": "([^"]+)"', added.inner_text())
    assert served.session(TokenId(token_id)).redirect_uri
    page.get_by_role("button", name="Authorize").click()
    page.get_by_role("button", name="Remove authorization").click()
    expect(page.locator(".auth-container input")).to_have_count(1)
    page.get_by_label("auth-bearer-value").fill(served.token_for(served.a_caller()))
    page.get_by_role("button", name="Apply credentials").first.click()
    page.get_by_role("button", name="Close").first.click()
    expect(execute(page, "Cards-listCards")).to_contain_text('"last_four": "1111"')

    assert {url for url in requests if not url.startswith(("data:", f"{origin}/"))} == set()
    kept = page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]")
    assert kept == ["", 0, 0]
    assert token not in "".join(requests[1:])

    block = page.locator("#operations-Cards-listCards")
    expect(block.locator(".operation-link").first).to_be_visible()
    assert_fits(page, 390, 320)
    block.get_by_role("tab", name="Schema").first.click()
    expect(block.locator(".model-container").first).to_be_visible()
    assert_fits(page)
    assert block.evaluate(NARROWEST_CELL) > 150
