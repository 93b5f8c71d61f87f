"""The demo in a real browser: a visitor has something go wrong, and the card arrives once."""

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

# The worker asks about a card that nothing else tells it of 30 seconds after the link was opened, or
# on a slow machine after two minutes.
ARRIVES_MILLISECONDS: Final = 150_000
WIDTHS: Final = (1280, 900, 390, 320)
SCREEN: Final = ViewportSize(width=1280, height=900)
GUESTS_WINDOW: Final = ViewportSize(width=390, height=780)
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


def open_guests_window(page: Page, *faults: str) -> Page:
    """Switch these faults on and all others off, and press the button. Return the filled-in form."""
    for switch in page.get_by_role("switch").all():
        switch.uncheck()
    for fault in faults:
        page.get_by_role("switch", name=fault).press("Space")
    with page.expect_popup() as opened:
        page.get_by_role("button", name="Add a card").press("Enter")
    guest = opened.value
    expect(guest.get_by_role("heading", level=1)).to_have_text(SPA.center.name)
    guest.get_by_role("button", name="4242 4242 4242 4242").click()
    return guest


def expect_card_once(page: Page) -> list[str]:
    """Wait until the card has arrived. Return the titles of the steps."""
    steps = page.get_by_role("log").get_by_role("listitem")
    stored = steps.filter(has_text="account.stored")
    expect(stored).to_contain_text("Signature verified", timeout=ARRIVES_MILLISECONDS)
    expect(page.get_by_role("heading", name="Cards of this guest")).to_contain_text("on file: 1")
    expect(page.get_by_text("Visa ending in 4242")).to_have_count(1)
    return [step.locator("strong").inner_text() for step in steps.all()]


@pytest.mark.parametrize(
    ("faults", "shown"),
    [
        ((), set()),
        ((CLOSE,), {"Browser closed", "Webhook"}),
        ((LOSE,), {"Webhook lost"}),
        ((HANG,), {"No response"}),
        ((KILL,), {"Killed", "Started again"}),
        ((CLOSE, LOSE), {"Browser closed", "Webhook lost"}),
        ((CLOSE, HANG, KILL), {"Browser closed", "Killed", "Started again"}),
    ],
    ids=lambda each: " and ".join(each) if isinstance(each, tuple) else "",
)
def test_a_card_arrives_once_whatever_goes_wrong(
    demo: Demo, page: Page, faults: tuple[str, ...], shown: set[str]
) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page, *faults)
    guest.get_by_role("button", name="Add card").click()

    titles = expect_card_once(page)

    assert titles[:3] == ["Add-card", "Link opened", "Page made"]
    assert shown <= {*titles}
    assert LOSE not in faults or "Webhook" not in titles
    for once in ("Card collected", "Card stored", "account.stored"):
        assert titles.count(once) == 1
    if CLOSE in faults:
        assert guest.is_closed()
    else:
        expect(guest.get_by_role("status")).to_have_text("Your card is on file.")
        assert_accessible(guest)


def test_the_browser_is_closed_by_a_page_that_was_loaded_again(demo: Demo, page: Page) -> None:
    page.goto(demo.shop)
    guest = open_guests_window(page, CLOSE)
    page.reload()
    guest.get_by_role("button", name="Add card").click()

    assert "Browser closed" in expect_card_once(page)
    assert guest.is_closed()


def test_each_card_has_a_time_line_of_its_own(demo: Demo, page: Page) -> None:
    page.goto(demo.shop)
    for _ in range(2):
        guest = open_guests_window(page)
        guest.get_by_role("button", name="Add card").click()
        titles = expect_card_once(page)
        assert len(titles) == len({*titles})
        guest.close()


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_the_page_fits_every_screen(
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


@pytest.mark.parametrize("color_scheme", ["light", "dark"])
def test_the_readme_has_a_picture_of_the_demo(
    demo: Demo, browser: Browser, tmp_path: Path, color_scheme: Literal["light", "dark"]
) -> None:
    with browser.new_context(
        viewport=SCREEN, device_scale_factor=1.5, color_scheme=color_scheme
    ) as context:
        page = context.new_page()
        page.goto(demo.shop)
        guest = open_guests_window(page, KILL)
        guest.set_viewport_size(GUESTS_WINDOW)
        form = guest.screenshot()
        guest.get_by_role("button", name="Add card").click()
        expect_card_once(page)
        page.get_by_role("button", name="Add a card").blur()
        place = page.get_by_text("The guest’s page opens here.").bounding_box()
        assert place is not None
        collage = context.new_page()
        collage.set_content(
            COLLAGE.format(
                demo=b64encode(page.screenshot()).decode(),
                guest=b64encode(form).decode(),
                x=place["x"],
                y=place["y"],
            )
        )
        picture = Path(os.environ.get("SCREENSHOTS", tmp_path)) / f"demo-{color_scheme}.png"
        collage.locator("body").screenshot(path=picture)

    assert picture.read_bytes().startswith(b"\x89PNG")
