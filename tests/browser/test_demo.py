"""The demo in a real browser. A visitor switches faults on, and the card arrives once."""

from __future__ import annotations

import os
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Final, Literal

import pytest
from playwright.sync_api import Browser, Page, ViewportSize, expect

from entrypoints.demo.sample import SPA
from tests.browser.pages import assert_accessible, assert_fits
from tests.demo import Demo, running_demo

SCREEN: Final = ViewportSize(width=1280, height=800)
GUESTS_WINDOW: Final = ViewportSize(width=390, height=680)
KILL: Final = "Kill the service"
FAULTS: Final = ("Close the browser", "Lose the webhook", "The PSP hangs", KILL)
SHOWN: Final = {"Browser lost", "Webhook lost", "Silent", "Killed", "Started again"}
"""The steps that show what went wrong."""
SCHEMES: Final[tuple[Literal["light", "dark"], ...]] = ("light", "dark")
COLLAGE: Final = """<!doctype html><title>Demo</title>
<body style="margin: 0; width: 1280px; position: relative">
<img src="data:image/png;base64,{demo}" style="display: block; width: 1280px">
<img src="data:image/png;base64,{guest}" style="position: absolute; left: {x}px; top: {y}px;
  width: 390px; border-radius: 12px; box-shadow: 0 8px 32px rgb(0 0 0 / 35%)">"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


def press(page: Page, button: str) -> Page:
    """Press a button by keyboard, and return the window that opens."""
    with page.expect_popup() as opened:
        page.get_by_role("button", name=button, exact=True).press("Enter")
    return opened.value


def open_guests_window(page: Page, *faults: str, card: str = "4242 4242 4242 4242") -> Page:
    """Switch only these faults on. Press the button, and return the filled-in form."""
    for name in FAULTS:
        page.get_by_role("switch", name=name).set_checked(name in faults)
    guest = press(page, "Add a card")
    expect(guest.get_by_role("heading", level=1)).to_have_text(SPA.center.name)
    guest.get_by_role("button", name=card).click()
    return guest


def expect_card_once(page: Page) -> list[str]:
    """Wait until the card has arrived. Return the titles of the steps."""
    steps = page.get_by_role("log").get_by_role("listitem")
    stored = steps.filter(has_text="account.stored")
    expect(stored).to_contain_text("Signature verified")
    expect(page.get_by_role("heading", name="Cards of this guest")).to_contain_text("on file: 1")
    expect(page.get_by_text("Visa ending in 4242")).to_have_count(1)
    return [step.locator("strong").inner_text() for step in steps.all()]


def test_the_demo_stores_a_card_once_even_if_all_faults_are_switched_on(
    demo: Demo, page: Page
) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page, *FAULTS)
    # The reloaded page still closes the guest's window.
    page.reload()
    expect(page.get_by_role("switch", checked=True)).to_have_count(len(FAULTS))
    guest.get_by_role("button", name="Add card").click()

    titles = expect_card_once(page)

    assert titles[:3] == ["Add-card", "Link opened", "Page made"]
    assert {*titles} >= SHOWN
    assert "Webhook" not in titles
    for once in ("Card collected", "Card stored", "account.stored"):
        assert titles.count(once) == 1
    assert guest.is_closed()


def test_a_guest_of_the_demo_adds_a_card_at_the_desk_and_removes_it_on_the_guests_own_page(
    demo: Demo, page: Page
) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page, card="4000 0000 0000 0002")
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="At the front desk").click()
    desk = opened.value
    expect(desk.get_by_role("status")).to_contain_text("The guest has opened the card form")
    # Beside each other, in front of the shop.
    assert all(each.evaluate("innerWidth") == 390 for each in (guest, desk))
    guest.get_by_role("button", name="Add card").click()
    expect(page.get_by_text("The card was declined.")).to_be_visible()
    guest.get_by_role("button", name="4242 4242 4242 4242").click()
    with guest.expect_event("close"):
        guest.get_by_role("button", name="Add card").click()
        expect(desk.get_by_role("status")).to_contain_text("Visa •••• 4242 stored")
    titles = expect_card_once(page)
    assert SHOWN & {*titles} == set()
    assert "Card declined" in titles

    own = press(page, "Manage my cards")
    own.get_by_role("button", name="Show my cards").click()
    own.get_by_role("link", name="Remove card").click()
    own.get_by_role("button", name="Remove card").click()

    expect(page.get_by_role("log")).to_contain_text("account.removed")
    expect(page.get_by_role("heading", name="Cards of this guest")).to_contain_text("on file: 0")
    own.get_by_role("link", name=f"Go back to {SPA.center.name}").click()
    expect(own.get_by_role("status")).to_have_text("Your card was removed.")


def test_a_guest_of_the_demo_makes_a_second_booking_with_one_click(demo: Demo, page: Page) -> None:
    page.goto(demo.shop)
    guest = press(page, "Book a massage")
    expect(guest.get_by_role("main")).to_contain_text("Swedish massage")
    guest.get_by_role("button", name="Agree and guarantee the booking").click()
    guest.get_by_role("button", name="4242 4242 4242 4242").click()
    guest.get_by_role("button", name="Add card").click()
    summary = page.get_by_text("Your card guarantees the booking.")
    expect(summary).to_be_visible()
    guest.close()

    guest = press(page, "Book another massage for this guest")
    expect(guest.get_by_role("main")).to_contain_text("Visa •••• 4242")
    guest.get_by_role("button", name="Agree and guarantee the booking").click()

    expect(page.get_by_role("log")).to_contain_text("Card on file used")
    expect(summary).to_be_visible()
    expect(page.get_by_role("heading", name="Cards of this guest")).to_contain_text("on file: 1")


@pytest.mark.parametrize("path", ["/", "/back"])
def test_the_page_of_the_demo_shop_fits_every_screen(demo: Demo, page: Page, path: str) -> None:
    page.goto(f"{demo.shop}{path}")
    assert_fits(page, 1280, 900, 390, 320)
    for color_scheme in SCHEMES:
        page.emulate_media(color_scheme=color_scheme)
        assert_accessible(page)


def test_the_pictures_in_the_readme_can_be_taken_from_the_demo(
    demo: Demo, browser: Browser, tmp_path: Path
) -> None:
    with browser.new_context(viewport=SCREEN, device_scale_factor=1.5) as context:
        # The guest's window would close after five seconds.
        context.add_init_script("window.close = () => {}")
        page = context.new_page()
        page.goto(demo.shop)
        guest = open_guests_window(page, KILL)
        guest.set_viewport_size(GUESTS_WINDOW)
        guest.get_by_role("button", name="Add card").click()
        expect_card_once(page)
        back = [picture_of(guest, scheme) for scheme in SCHEMES]
        page.get_by_role("button", name="Add a card").blur()
        place = page.get_by_text("The guest’s window opens over this place.").bounding_box()
        assert place is not None
        collage = context.new_page()
        for scheme, window in zip(SCHEMES, back, strict=True):
            collage.set_content(
                COLLAGE.format(
                    demo=picture_of(page, scheme), guest=window, x=place["x"], y=place["y"]
                )
            )
            file = Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"demo-{scheme}.png"
            collage.locator("body").screenshot(path=file)

            assert file.read_bytes().startswith(b"\x89PNG")


def picture_of(page: Page, color_scheme: Literal["light", "dark"]) -> str:
    """Return a picture of the visible part of a page, as a data URL."""
    page.emulate_media(color_scheme=color_scheme)
    return b64encode(page.screenshot()).decode()
