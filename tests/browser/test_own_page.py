"""The guest's own page in a real browser."""

from __future__ import annotations

from datetime import timedelta

import pytest
from playwright.sync_api import Page, expect

from adapters.catalogs import Catalog, catalog
from adapters.psp_suite.samples import GUEST_ID
from tests.browser.pages import OpenPage, assert_good
from tests.browser.served import address_of
from tests.builders import CENTER_ID
from tests.domain.agreements.bookings import guaranteed, takes_agreements
from tests.installation import OTHER_GOOD_CARD, Installation

CARD = "Visa ••••\N{NO-BREAK SPACE}4242"
OTHER_CARD = "Mastercard ••••\N{NO-BREAK SPACE}4444"


@pytest.fixture(autouse=True)
def cards(served: Installation) -> None:
    """Store two cards of the guest. One of the cards guarantees a booking."""
    served.configure()
    takes_agreements(served)
    guaranteed(served, keeps=True)
    served.stored_card(OTHER_GOOD_CARD)


def open_link(served: Installation, page: Page, language: str = "en") -> None:
    """Open a new link."""
    link = served.container.open_portal()(
        served.caller,
        access_token="a.json.token",
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        return_uri=address_of(served, "/docs"),
        locale=language,
    )
    page.goto(served.container.links().portal_uri(link.secret))


def remove(page: Page, t: Catalog, card: str) -> None:
    """Remove a card by keyboard."""
    section = page.get_by_role("region", name=card)
    section.get_by_role("link", name=t.text("portal.remove.name")).press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text(t.text("portal.remove.title"))
    assert_good(page)
    page.get_by_role("button", name=t.text("portal.remove.name")).press("Enter")


def test_a_guest_can_remove_cards_by_keyboard(served: Installation, page: Page) -> None:
    t = catalog("ar")
    open_link(served, page, "ar")
    assert_good(page, "dark")
    page.get_by_role("button", name=t.text("portal.enter")).press("Enter")
    expect(page.get_by_role("region")).to_have_count(2)
    page.get_by_text(t.text("portal.read")).first.press("Enter")
    expect(page.get_by_text("2 × massage").nth(1)).to_be_visible()
    assert_good(page)

    remove(page, t, OTHER_CARD)
    expect(page.get_by_role("status")).to_have_text(t.text("portal.done.removed"))
    expect(page.get_by_role("region")).to_have_count(1)

    remove(page, t, CARD)
    expect(page.get_by_role("status")).to_have_text(t.text("portal.done.withdrawn"))
    expect(page.get_by_role("link", name=t.text("portal.remove.name"))).to_have_count(0)


def test_a_guest_can_replace_a_card_without_javascript(
    served: Installation, open_page: OpenPage
) -> None:
    page = open_page(java_script_enabled=False)
    open_link(served, page)
    page.get_by_role("button", name="Show my cards").click()

    served.clock.advance(timedelta(seconds=1))
    page.get_by_role("region", name=CARD).get_by_role("button", name="Replace").click()
    expect(page.get_by_text("Your new card replaces the card Visa")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.get_by_text("If you do not come")).to_be_visible()
    page.emulate_media(media="screen")
    page.get_by_role("button", name="Agree and guarantee the booking").click()
    page.get_by_label("Card number").fill("5105 1051 0510 5100")
    page.get_by_label("Expiry date").fill("08 / 30")
    page.get_by_label("Security code").fill("123")
    page.get_by_role("button", name="Add card").click()

    expect(page.get_by_role("status")).to_have_text("Your card was replaced.")
    expect(page.get_by_role("region", name="Mastercard ••••\N{NO-BREAK SPACE}5100")).to_be_visible()
    expect(page.get_by_role("region", name=CARD)).to_have_count(0)


def test_the_receipt_of_a_card_can_be_printed(served: Installation, page: Page) -> None:
    open_link(served, page)
    page.get_by_role("button", name="Show my cards").click()
    page.get_by_role("region", name=CARD).get_by_role("link", name="Receipt").click()
    expect(page.get_by_role("heading", level=3)).to_have_text(CARD)
    assert_good(page, "dark")

    # The browser stays in dark.
    page.emulate_media(media="print")

    expect(page.get_by_role("term").first).to_have_css("color", "rgb(85, 97, 122)")
    expect(page.get_by_text("may charge the card up to").first).to_be_visible()
    expect(page.get_by_role("link", name="Back to your cards")).to_be_hidden()
