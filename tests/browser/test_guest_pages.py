"""Cardonfile's own pages for guests in a real browser."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from typing import Final

import pytest
from playwright.sync_api import Page, ViewportSize, expect
from pysqlite3 import dbapi2

from entrypoints.demo.sample import SPA
from tests.browser.pages import assert_accessible, assert_fits
from tests.demo import Demo, running_demo
from tests.pictures import a_png

NAME: Final = SPA.center.name
LONG_AGO: Final = "2026-01-01T00:00:00.000000+00:00"
STATEMENT: Final = "https://spa.example/accessibility"
WIDTHS: Final = (1280, 390, 320)


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    folder = tmp_path_factory.mktemp("demo")
    settings = {"CARDONFILE_DATABASE_URL": f"sqlite:///{folder / 'demo.db'}"}
    (folder / "logo.png").write_bytes(a_png())
    with running_demo(folder, settings) as demo:
        look = ("--color", "#2e7d32", "--logo", str(folder / "logo.png"))
        addresses = ("--contact", "tel:+49301234567", "--accessibility", STATEMENT)
        demo.command("center", "set", SPA.center.id, *addresses, *look)
        yield demo


def a_link(demo: Demo, changes: str = "") -> str:
    """Return the link of a new session whose row has the `changes`."""
    link = str(demo.add_card()["hosted_payment_uri"])
    if changes:
        change(demo, link, changes)
    return link


def change(demo: Demo, link: str, changes: str) -> None:
    """Change the row of a session by hand."""
    token_id = link.partition("token_id=")[2].partition("&")[0]
    with closing(dbapi2.connect(str(demo.log.with_name("demo.db")))) as db, db:
        db.execute(f"UPDATE card_sessions SET {changes} WHERE token_id = ?", (token_id,))


def assert_good(page: Page) -> None:
    """Check the page on every screen, in dark and in forced colors. Buttons must have edges."""
    for width in WIDTHS:
        page.set_viewport_size(ViewportSize(width=width, height=800))
        assert_fits(page)
    for scheme in (None, "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_accessible(page)
    page.emulate_media(forced_colors="active")
    assert_accessible(page)
    for button in page.locator("button, .button").all():
        edge, ground = button.evaluate(
            "each => [getComputedStyle(each).borderTopColor, getComputedStyle(each).backgroundColor]"
        )
        assert edge != ground
        expect(button).to_have_css("border-top-width", "1px")
    page.emulate_media(forced_colors="none", color_scheme="light")


def assert_links_statement(page: Page) -> None:
    """Check that the page footer links to the center's accessibility statement."""
    statement = page.get_by_role("contentinfo").get_by_role("link", name="Accessibility statement")
    expect(statement).to_have_attribute("href", STATEMENT)


def test_the_page_of_an_expired_link_says_whom_the_guest_can_contact(
    demo: Demo, page: Page
) -> None:
    page.goto(a_link(demo, f"expires_at = {LONG_AGO!r}"))

    expect(page.get_by_role("heading", level=2)).to_have_text("This link has expired")
    page.keyboard.press("Tab")
    ask = page.get_by_role("link", name=f"Ask {NAME}: +49301234567")
    expect(ask).to_be_focused()
    expect(ask).to_have_attribute("href", "tel:+49301234567")
    expect(ask).to_have_css("background-color", "rgb(46, 125, 50)")
    ask.hover()
    # Brighter, white text would be less readable than the color was checked for.
    expect(ask).to_have_css("filter", re.compile(r"brightness\(0\.\d+\)"))
    assert page.locator(".logo").evaluate("each => each.naturalWidth") == 160
    assert_links_statement(page)
    assert_good(page)


def test_the_page_of_an_old_link_says_which_center_asks_for_the_card(
    demo: Demo, page: Page
) -> None:
    page.goto(a_link(demo, f"created_at = {LONG_AGO!r}"))

    expect(page.get_by_role("main")).to_contain_text(f"{NAME} asks you to add a card")
    expect(page.get_by_role("main")).to_contain_text("belongs to Fake PSP (127.0.0.1:")
    assert_links_statement(page)
    assert_good(page)
    page.get_by_role("button", name="Continue to the payment page").press("Enter")
    expect(page.get_by_label("Card number")).to_be_visible()
    assert page.locator(".logo").evaluate("each => each.naturalWidth") == 160
    expect(page.get_by_role("button", name="Add card")).to_have_css(
        "background-color", "rgb(46, 125, 50)"
    )


@pytest.mark.parametrize("path", ["/", "/nowhere", "/hosted-payments?token_id=x"])
def test_the_page_at_an_unknown_address_tells_the_visitor_what_to_do(
    demo: Demo, page: Page, path: str
) -> None:
    page.goto(f"{demo.api}{path}")

    expect(page.get_by_role("main")).to_contain_text("link")
    expect(page.get_by_role("contentinfo")).to_have_count(0)
    assert_good(page)


def test_the_first_button_of_an_error_page_opens_the_hosted_page_when_the_psp_is_back(
    demo: Demo, page: Page
) -> None:
    link = a_link(demo, "configuration = replace(configuration, 'fake', 'gone')")
    page.goto(link)
    # Nobody here knows whether the page of this PSP asks for consent.
    page.get_by_role("button", name="Continue to the payment page").click()
    expect(page.get_by_role("heading", level=2)).to_have_text("The payment page cannot be reached")
    assert_good(page)
    change(demo, link, "configuration = replace(configuration, 'gone', 'fake')")

    page.get_by_role("link").first.focus()
    page.keyboard.press("Enter")

    expect(page.get_by_label("Card number")).to_be_visible()
