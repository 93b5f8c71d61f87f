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
from tests.browser.pages import OpenPage, assert_accessible, assert_fits
from tests.demo import Demo, running_demo

WIDTHS: Final = (1280, 900, 390, 320)
SCREEN: Final = ViewportSize(width=1280, height=800)
GUESTS_WINDOW: Final = ViewportSize(width=390, height=680)
CLOSE, LOSE, HANG, KILL = (
    "Close the browser",
    "Lose the webhook",
    "The PSP hangs",
    "Kill the service",
)
COLLAGE: Final = """<!doctype html><title>Demo</title>
<body style="margin: 0; width: 1280px; position: relative">
<img src="data:image/png;base64,{demo}" style="display: block; width: 1280px">
<img src="data:image/png;base64,{guest}" style="position: absolute; left: {x}px; top: {y}px;
  width: 390px; border-radius: 12px; box-shadow: 0 8px 32px rgb(0 0 0 / 35%)">"""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


def open_guests_window(page: Page, *faults: str, card: str = "4242 4242 4242 4242") -> Page:
    """Switch only these faults on. Press the button, and return the filled-in form."""
    for switch in page.get_by_role("switch").all():
        switch.uncheck()
    for fault in faults:
        page.get_by_role("switch", name=fault).press("Space")
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Add a card").press("Enter")
    guest = opened.value
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


# The worker asks about the last one 30 seconds after its link was opened, or later.
@pytest.mark.parametrize("faults", [(), (CLOSE, LOSE, HANG, KILL)], ids=["nothing", "everything"])
def test_the_demo_stores_a_card_once_even_if_all_faults_are_switched_on(
    demo: Demo, page: Page, faults: tuple[str, ...]
) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page, *faults)
    guest.get_by_role("button", name="Add card").click()
    if not faults:
        expect(guest.get_by_role("status")).to_have_text("Your card is on file.")

    titles = expect_card_once(page)

    assert titles[:3] == ["Add-card", "Link opened", "Page made"]
    shown = {"Browser lost", "Webhook lost", "Silent", "Killed", "Started again"}
    assert shown & {*titles} == (shown if faults else set())
    assert not faults or "Webhook" not in titles
    for once in ("Card collected", "Card stored", "account.stored"):
        assert titles.count(once) == 1
    if not guest.is_closed():
        guest.wait_for_event("close")


def test_a_guest_of_the_demo_makes_a_second_booking_with_one_click(demo: Demo, page: Page) -> None:
    page.goto(demo.shop)
    for switch in page.get_by_role("switch").all():
        switch.uncheck()
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Book a massage").click()
    guest = opened.value
    expect(guest.get_by_role("main")).to_contain_text("Swedish massage")
    guest.get_by_role("button", name="Agree and guarantee the booking").click()
    guest.get_by_role("button", name="4242 4242 4242 4242").click()
    guest.get_by_role("button", name="Add card").click()
    summary = page.get_by_text("Your card guarantees the booking.")
    expect(summary).to_be_visible()
    if not guest.is_closed():
        guest.wait_for_event("close")

    with page.expect_popup() as opened:
        page.get_by_role("button", name="Book another massage for this guest").click()
    guest = opened.value
    expect(guest.get_by_role("main")).to_contain_text("Visa •••• 4242")
    guest.get_by_role("button", name="Agree and guarantee the booking").click()

    expect(page.get_by_role("log")).to_contain_text("Card on file used")
    expect(summary).to_be_visible()
    expect(page.get_by_role("heading", name="Cards of this guest")).to_contain_text("on file: 1")


def test_the_front_desk_page_of_the_demo_follows_the_progress_of_the_guest(
    demo: Demo, page: Page
) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page)
    with page.context.expect_page() as opened:
        page.get_by_role("button", name="At the front desk").click()
    desk = opened.value
    expect(desk.get_by_role("status")).to_contain_text("The guest has opened the card form")
    # Beside each other, in front of the shop.
    assert all(each.evaluate("innerWidth") == 390 for each in (guest, desk))
    guest.get_by_role("button", name="Add card").click()

    expect(desk.get_by_role("status")).to_contain_text("Visa •••• 4242 stored")
    expect_card_once(page)


def test_a_guest_of_the_demo_removes_the_card_on_the_own_page(demo: Demo, page: Page) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page)
    guest.get_by_role("button", name="Add card").click()
    expect_card_once(page)
    if not guest.is_closed():
        guest.wait_for_event("close")

    with page.expect_popup() as opened:
        page.get_by_role("button", name="Manage my cards").click()
    own = opened.value
    own.get_by_role("button", name="Show my cards").click()
    own.get_by_role("link", name="Remove card").click()
    own.get_by_role("button", name="Remove card").click()

    expect(page.get_by_role("log")).to_contain_text("account.removed")
    expect(page.get_by_role("heading", name="Cards of this guest")).to_contain_text("on file: 0")
    own.get_by_role("link", name=f"Go back to {SPA.center.name}").click()
    expect(own.get_by_role("status")).to_have_text("Your card was removed.")


def test_a_reloaded_page_of_the_demo_shop_still_closes_the_guests_window(
    demo: Demo, page: Page
) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page, CLOSE)
    page.reload()
    expect(page.get_by_role("switch", checked=True)).to_have_accessible_name(CLOSE)
    guest.get_by_role("button", name="Add card").click()

    assert {"Browser lost", "Webhook"} <= {*expect_card_once(page)}
    assert guest.is_closed()


def test_the_demo_shop_tells_a_guest_that_the_card_was_not_added(demo: Demo, page: Page) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page, card="4000 0000 0000 0002")
    guest.get_by_role("button", name="Add card").click()
    expect(page.get_by_text("The card was declined.")).to_be_visible()
    guest.get_by_role("link", name="Return without adding a card").click()

    expect(guest.get_by_role("status")).to_have_text("You went back without adding a card.")
    titles = page.get_by_role("log").get_by_role("listitem").locator("strong")
    # The webhook about the refused card may come before or after.
    expect(titles.filter(has_text="Card declined")).to_be_visible()
    expect(titles.filter(has_text="Gone back")).to_be_visible()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_the_page_of_the_demo_shop_fits_every_screen(
    demo: Demo, open_page: OpenPage, color_scheme: Literal["light", "dark"]
) -> None:
    page = open_page(viewport=SCREEN)
    page.emulate_media(color_scheme=color_scheme)
    for path in ("/", "/back"):
        page.goto(f"{demo.shop}{path}")
        for width in WIDTHS:
            page.set_viewport_size(ViewportSize(width=width, height=844))
            assert_fits(page)
        assert_accessible(page)


def test_the_pictures_in_the_readme_can_be_taken_from_the_demo(
    demo: Demo, browser: Browser, tmp_path: Path
) -> None:
    schemes: tuple[Literal["light", "dark"], ...] = ("light", "dark")
    with browser.new_context(viewport=SCREEN, device_scale_factor=1.5) as context:
        page = context.new_page()
        page.goto(demo.shop)
        guest = open_guests_window(page, KILL)
        guest.set_viewport_size(GUESTS_WINDOW)
        guest.get_by_role("button", name="Add card").click()
        expect_card_once(page)
        # The guest's window closes after five seconds.
        back = [picture_of(guest, scheme) for scheme in schemes]
        page.get_by_role("button", name="Add a card").blur()
        place = page.get_by_text("The guest’s window opens over this place.").bounding_box()
        assert place is not None
        collage = context.new_page()
        for scheme, window in zip(schemes, back, strict=True):
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
