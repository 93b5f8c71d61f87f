"""Cardonfile's own pages before and after the hosted page, in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Final
from urllib.parse import parse_qsl

from playwright.sync_api import Locator, Page, expect

from adapters.catalogs import catalog, shipped_reservation_texts
from tests.browser.pages import assert_accessible, assert_fits, assert_good
from tests.browser.served import SHOP, link, opened, send_card, serving, started
from tests.builders import CENTER_ID, a_shipped_consent
from tests.installation import OTHER_GOOD_CARD, Installation
from tests.listening import ListeningServer, responding, running
from tests.pictures import a_png

WIDTHS: Final = (1280, 390, 320)
STATEMENT: Final = "https://spa.example/accessibility"
BANK: Final = b"<title>Bank</title><link rel=icon href=data:,>"


def assert_has_edge_in_forced_colors(button: Locator) -> None:
    button.page.emulate_media(forced_colors="active")
    assert_accessible(button.page)
    edge, ground = button.evaluate(
        "each => [getComputedStyle(each).borderTopColor, getComputedStyle(each).backgroundColor]"
    )
    assert edge != ground
    expect(button).to_have_css("border-top-width", "1px")
    button.page.emulate_media(forced_colors="none")


def test_every_page_that_a_link_leads_to_shows_the_branding_of_the_center(
    served: Installation, page: Page
) -> None:
    look = {"color": "#2e7d32", "logo": a_png()}
    addresses = {"contact": "tel:+49301234567", "accessibility": STATEMENT}
    served.container.set_center()(CENTER_ID, {**look, **addresses})
    session = started(served, link_minutes=43_200)
    served.clock.advance(timedelta(hours=25))
    logo, footer = page.locator(".logo"), page.get_by_role("contentinfo")
    statement = footer.get_by_role("link", name="Accessibility statement")
    page.goto(link(served, session))
    expect(statement).to_have_attribute("href", STATEMENT)
    assert logo.evaluate("each => each.naturalWidth") == 160
    proceed = page.get_by_role("button", name="Continue to the payment page")
    assert_has_edge_in_forced_colors(proceed)
    proceed.press("Enter")
    expect(page.get_by_role("button", name="Add card")).to_have_css(
        "background-color", "rgb(46, 125, 50)"
    )
    assert logo.evaluate("each => each.naturalWidth") == 160
    assert_fits(page, *WIDTHS)

    served.clock.advance(timedelta(days=30))
    page.goto(link(served, session))
    expect(statement).to_have_attribute("href", STATEMENT)
    page.keyboard.press("Tab")
    ask = page.get_by_role("link", name="Ask Harbor Spa: +49301234567")
    expect(ask).to_be_focused()
    expect(ask).to_have_css("background-color", "rgb(46, 125, 50)")
    ask.hover()
    # Brighter, white text would be less readable than the color was checked for.
    expect(ask).to_have_css("filter", re.compile(r"brightness\(0\.\d+\)"))
    assert_fits(page, *WIDTHS)
    assert_has_edge_in_forced_colors(ask)


def test_a_psp_page_that_is_opened_by_a_form_receives_the_form_fields(
    served: Installation, page: Page
) -> None:
    fields = {"parameters": "eyJhIjoxfQ==", "signature": 'a&b="ü"'}
    start = served.provider.start
    with running(ListeningServer()) as psp:
        psp.acts = [responding(200, BANK, Content_Type="text/html")]
        address = f"{psp.url}/pay?shop=1"
        served.provider.start = lambda request: replace(
            start(request), address=address, fields=fields
        )
        opened(served, page)
        # This center has no accessibility statement.
        expect(page.get_by_role("contentinfo")).to_have_count(0)
        page.get_by_role("button", name="Continue to the payment page").click()
        expect(page).to_have_title("Bank")
        (request,) = psp.requests

    assert (request.method, request.path) == ("POST", "/pay?shop=1")
    assert dict(parse_qsl(request.body.decode())) == fields


def test_a_guest_agrees_on_our_own_page_if_the_psps_page_shows_no_consent(
    tmp_path: Path, page: Page
) -> None:
    text = a_shipped_consent(language="ar").text
    with serving(tmp_path, {"shows_consent": False}) as served:
        session = opened(served, page, "ar")
        expect(page.get_by_role("main")).to_contain_text(text)
        agree = page.get_by_role("button", name=catalog("ar").text("continue.agree"))
        expect(agree).to_have_accessible_description(text)
        assert_good(page)

        agree.press("Enter")

        number = page.get_by_label(catalog("ar").text("form.number"))
        expect(number).to_be_visible()
        attempt = served.session(session.token_id).current_attempt
        assert (attempt.agreed_at, attempt.request.language) == (served.clock.now(), "ar")
        page.goto(link(served, session))
        expect(number).to_be_visible()


def assert_reads_from_left_to_right(page: Page, address: object) -> None:
    """Check that the last character of an address is at the right end of the address."""
    first, last = page.evaluate(
        """address => {
            const texts = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
            while (!texts.nextNode().data.includes(address));
            const start = texts.currentNode.data.indexOf(address);
            return [start, start + address.length - 1].map(at => {
                const range = document.createRange();
                range.setStart(texts.currentNode, at);
                range.setEnd(texts.currentNode, at + 1);
                return range.getBoundingClientRect().left;
            });
        }""",
        address,
    )
    assert first < last


def test_a_guest_agrees_to_the_terms_of_a_booking(served: Installation, page: Page) -> None:
    served.container.set_center()(CENTER_ID, {"time_zone": "Asia/Riyadh"})
    for each in ("en", "ar"):
        served.container.set_reservation_text()(CENTER_ID, each)
    starts_at = served.clock.now() + timedelta(days=10)
    booking = {
        "reference": "booking-17",
        "description": "2 × massage",
        "starts_at": starts_at.isoformat(),
        "ends_at": (starts_at + timedelta(hours=1)).isoformat(),
        "no_show": {"amount": "80.00", "currency": "EUR"},
        "policy_uri": "https://a.example/",
    }
    text = shipped_reservation_texts()["ar"]
    agree = page.get_by_role("button", name=text.button)
    keep = page.get_by_role("checkbox", name=text.keep)
    session = opened(served, page, "ar", agreement=booking)
    expect(page.get_by_role("main")).to_contain_text("2 × massage")
    assert_reads_from_left_to_right(page, booking["policy_uri"])
    expect(keep).not_to_be_checked()
    assert_good(page)

    keep.press("Space")
    agree.press("Enter")
    send_card(page, OTHER_GOOD_CARD)
    page.wait_for_url(f"**{SHOP}")

    (account,) = served.accounts()
    assert account.keep_until is None
    with served.storage.read() as unit:
        (agreement,) = unit.agreements.of_account(account.account_id)
    assert agreement.terms == served.session(session.token_id).agreement
    assert agreement.shown.button == text.button

    another = {**booking, "reference": "booking-18", "reuse": "offer"}
    again = opened(served, page, "ar", agreement=another)
    expect(page.get_by_role("main")).to_contain_text(f"•••• {account.last_four}")
    expect(page.get_by_role("checkbox")).to_have_count(0)
    assert_good(page, "dark")
    page.get_by_role("link", name=catalog("ar").text("card_on_file.another")).click()
    expect(keep).to_be_visible()
    page.go_back()
    agree.press("Enter")
    page.wait_for_url(f"**{SHOP}")
    assert served.session(again.token_id).account_id == account.account_id
