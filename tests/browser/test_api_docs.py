"""A visitor tries out requests in `/docs` of a running demo."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from playwright.sync_api import Locator, Page, expect

from entrypoints.demo.sample import GUESTS
from tests.browser.pages import OpenPage, assert_fits, type_into
from tests.demo import Demo, running_demo


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


def authorize(page: Page, token: str) -> None:
    page.get_by_role("button", name="Authorize").click()
    expect(page.locator(".auth-container input")).to_have_count(1)
    type_into(page.get_by_label("auth-bearer-value"), token)
    page.get_by_role("button", name="Apply credentials").first.click()
    page.get_by_role("button", name="Close").first.click()


def execute(page: Page, operation: str) -> Locator:
    """Send the example of an operation unchanged, and return the response."""
    block = page.locator(f"#operations-{operation}")
    block.locator(".opblock-summary-control").click()
    block.get_by_role("button", name="Execute").click()
    return block.locator(".live-responses-table .response")


def test_a_visitor_can_try_out_requests_in_the_api_docs(page: Page, demo: Demo) -> None:
    # Another origin than the public base URL: requests must go to where the page came from.
    origin = demo.api.replace("127.0.0.1", "localhost")
    requests: list[str] = []
    page.on("request", lambda request: requests.append(request.url))
    page.goto(f"{origin}/docs")
    authorize(page, demo.token)

    centers = execute(page, "Centers-listCenters")
    expect(centers).to_contain_text("200")
    expect(centers).to_contain_text("Still Water Spa")
    added = execute(page, "Cards-addCard")
    expect(added).to_contain_text("200")
    expect(added).to_contain_text(f"{demo.api}/hosted-payments?token_id=")
    newest, *_ = demo.call("/sessions", guest_id=GUESTS[-1].id)["sessions"]
    expect(added).to_contain_text(newest["token_id"])

    assert {url for url in requests if not url.startswith(("data:", f"{origin}/"))} == set()
    kept = page.evaluate("[document.cookie, localStorage.length, sessionStorage.length]")
    assert kept == ["", 0, 0]
    assert demo.token not in "".join(requests)


def test_the_address_of_the_api_docs_that_the_demo_prints_contains_the_token(
    page: Page, demo: Demo
) -> None:
    page.goto(demo.docs)
    expect(page).to_have_url(f"{demo.api}/docs")

    expect(execute(page, "Cards-addCard")).to_contain_text("hosted_payment_uri")


NARROWEST = """each => Math.min(
    ...Array.from(each.querySelectorAll("tbody .response-col_description"), cell => cell.clientWidth)
)"""


def test_the_api_docs_are_readable_on_a_phone(open_page: OpenPage, demo: Demo) -> None:
    page = open_page(viewport={"width": 390, "height": 844})
    page.goto(f"{demo.api}/docs")

    expect(page.get_by_text("From a token to a card on file")).to_be_visible()
    groups = page.locator("h3.opblock-tag")
    expect(groups).to_have_text(
        [re.compile(f"^{name}") for name in ("Cards", "Sessions", "Guests", "Centers")]
        + [re.compile("^Products"), re.compile("^Events"), re.compile("^Service")]
    )
    # Clients call nothing of the last one.
    expect(page.locator("#operations-Products-listProducts")).to_be_visible()
    expect(page.locator("#operations-Service-openHostedPage")).to_have_count(0)
    groups.last.click()
    expect(page.locator("#operations-Service-openHostedPage")).to_be_visible()
    assert_fits(page)
    block = page.locator("#operations-Cards-listCards")
    block.locator(".opblock-summary-control").click()
    expect(block.locator(".operation-link").first).to_be_visible()
    for width in (390, 320):
        page.set_viewport_size({"width": width, "height": 844})
        assert_fits(page)
    block.get_by_role("tab", name="Schema").first.click()
    expect(block.locator(".model-container").first).to_be_visible()
    assert_fits(page)
    assert block.evaluate(NARROWEST) > 150
