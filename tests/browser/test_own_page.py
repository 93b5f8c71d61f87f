"""The guest's own page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from adapters.catalogs import Catalog, catalog
from adapters.psp_suite.samples import GUEST_ID
from tests.browser.pages import OpenPage, assert_accessible, assert_fits
from tests.browser.test_languages import serving
from tests.builders import CENTER_ID
from tests.domain.agreements.bookings import guaranteed, takes_agreements
from tests.installation import OTHER_GOOD_CARD, Installation

CARD = "Visa ••••\N{NO-BREAK SPACE}4242"
OTHER_CARD = "Mastercard ••••\N{NO-BREAK SPACE}4444"


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Installation]:
    """An installation that browsers reach. One of the guest's two cards guarantees a booking."""
    with serving(tmp_path) as installed:
        installed.configure()
        takes_agreements(installed)
        guaranteed(installed, keeps=True)
        installed.stored_card(OTHER_GOOD_CARD)
        yield installed


def opened(served: Installation, language: str) -> str:
    """Return the address of a link."""
    link = served.container.open_portal()(
        served.caller,
        access_token="a.json.token",
        guest_id=GUEST_ID,
        center_id=CENTER_ID,
        return_uri=f"{served.settings.public_base_url}/docs",
        locale=language,
    )
    return served.container.links().portal_uri(link.secret)


def assert_good(page: Page) -> None:
    """Check the page at 320 pixels, in light and dark."""
    page.set_viewport_size(ViewportSize(width=320, height=640))
    assert_fits(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_accessible(page)


def remove(page: Page, t: Catalog, card: str) -> None:
    """Remove a card by keyboard."""
    section = page.get_by_role("region", name=card)
    section.get_by_role("link", name=t.text("portal.remove.name")).press("Enter")
    expect(page.get_by_role("heading", level=2)).to_have_text(t.text("portal.remove.title"))
    assert_good(page)
    page.get_by_role("button", name=t.text("portal.remove.name")).press("Enter")


@pytest.mark.parametrize("language", ["en", "ar"])
def test_a_guest_can_remove_cards_by_keyboard(
    served: Installation, open_page: OpenPage, language: str
) -> None:
    t, page = catalog(language), open_page()
    page.goto(opened(served, language))
    assert_good(page)
    page.get_by_role("button", name=t.text("portal.enter")).press("Enter")
    expect(page.get_by_role("region")).to_have_count(2)
    assert_good(page)
    page.get_by_text(t.text("portal.read")).first.press("Enter")
    expect(page.get_by_text("2 × massage").nth(1)).to_be_visible()

    remove(page, t, OTHER_CARD)
    expect(page.get_by_role("status")).to_have_text(t.text("portal.done.removed"))
    expect(page.get_by_role("region")).to_have_count(1)

    remove(page, t, CARD)
    expect(page.get_by_role("status")).to_have_text(t.text("portal.done.withdrawn"))
    expect(page.get_by_role("link", name=t.text("portal.remove.name"))).to_have_count(0)
    assert_good(page)


def test_a_guest_can_replace_a_card_without_javascript(
    served: Installation, open_page: OpenPage
) -> None:
    page = open_page(java_script_enabled=False)
    page.goto(opened(served, "en"))
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
    page.goto(opened(served, "en"))
    page.get_by_role("button", name="Show my cards").click()
    page.get_by_role("region", name=CARD).get_by_role("link", name="Receipt").click()
    expect(page.get_by_role("heading", level=3)).to_have_text(CARD)
    assert_good(page)

    # `assert_good` has left the browser in dark.
    page.emulate_media(media="print")

    expect(page.get_by_role("term").first).to_have_css("color", "rgb(85, 97, 122)")
    expect(page.get_by_text("may charge the card up to").first).to_be_visible()
    expect(page.get_by_role("link", name="Back to your cards")).to_be_hidden()


def test_the_guests_own_page_stops_working_after_the_guest_was_erased(
    served: Installation, page: Page
) -> None:
    page.goto(opened(served, "en"))
    page.get_by_role("button", name="Show my cards").click()
    served.erase_guest()

    page.get_by_role("link", name="Remove card").first.click()

    expect(page.get_by_role("heading", level=1)).to_have_text("Please open your link again")
    assert_good(page)
    page.go_back()
    page.reload()
    expect(page.get_by_role("heading", level=1)).to_have_text("Please open your link again")
