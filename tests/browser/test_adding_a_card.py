"""A guest adds a card in a real browser: from the link to the hosted page, and back to the shop."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from entrypoints.demo.sample import CLINIC, SPA, SampleCenter
from tests.browser.pages import OpenPage, assert_accessible, assert_fits, type_into
from tests.demo import Demo, running_demo
from tests.listening import ListeningServer, responding, running
from tests.waiting import wait_until

EXPIRY_AS_WRITTEN: Final = (
    *("09 / 31", "9/31", "09-31", "9 31", "0931", "931"),
    *("09/2031", "092031", "2031-09"),
)
NUMBER_AS_WRITTEN: Final = (
    *("4242424242424242", "4242-4242-4242-4242"),
    *(" 4242  4242 42424242 ", "4242\u00a04242\u00a04242\u00a04242"),
)
AUTOFILL: Final = """(field, text) => {
    field.value = text
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }))
}"""
"""What a browser and a password manager do when they fill in a field."""
WELCOME: Final = b'<!doctype html><link rel="icon" href="data:,"><h1>Welcome back</h1>'
PHONE: Final = ViewportSize(width=320, height=640)
DESKTOP: Final = ViewportSize(width=1280, height=900)


@pytest.fixture(scope="module")
def shared_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture
def demo(shared_demo: Demo) -> Iterator[Demo]:
    """A demo without cards of Ada's."""
    yield shared_demo
    shared_demo.remove_cards()


def add_a_card(page: Page, demo: Demo, center: SampleCenter = SPA) -> None:
    """Go to the hosted page of a center."""
    page.goto(demo.add_card(center)["hosted_payment_uri"])
    expect(page.get_by_role("heading", level=1)).to_have_text(center.center.name)


def type_card(
    page: Page, number: str = "4242424242424242", *, expiry: str = "09/31", cvc: str = "123"
) -> None:
    """Type the card, and submit it."""
    type_into(page.get_by_label("Card number"), number)
    type_into(page.get_by_label("Expiry date"), expiry)
    type_into(page.get_by_label("Security code"), cvc)
    page.get_by_role("button", name="Add card").click()


def paste(page: Page, text: str, field: Locator) -> None:
    """Paste a text that was cut from another field."""
    other = page.get_by_label("City")
    type_into(other, text)
    other.press("ControlOrMeta+a")
    other.press("ControlOrMeta+x")
    field.press("ControlOrMeta+a")
    field.press("ControlOrMeta+v")


def expect_cards(page: Page, demo: Demo, *endings: str) -> None:
    """Expect to be back in the shop, with these cards of Ada's in this order."""
    expect(page).to_have_url(f"{demo.shop}/")
    # The worker may be asking the PSP when the guest comes back, who is not kept waiting then.
    wait_until(lambda: [card["last_four"] for card in demo.call("")["accounts"]] == [*endings])


def expect_wrong(field: Locator, message: str) -> None:
    """Expect a field to be marked, described by its message, and focused."""
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile(re.escape(message)))
    expect(field).to_be_focused()


# Shows S9.
def test_a_card_is_added_by_keyboard_alone(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
    expect(page.locator("body")).to_contain_text("A••• S•••")
    expect(page.locator("body")).not_to_contain_text("Ada Sample")
    page.get_by_label("Card number").focus()
    for text in ("4242424242424242", "09/31", "123"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Add card")).to_be_focused()
    page.keyboard.press("Enter")

    expect_cards(page, demo, "4242")


@pytest.mark.parametrize("number", ["4242424242424242", "4000000000003220"])
def test_a_guest_follows_a_shop_that_redirects_on(demo: Demo, page: Page, number: str) -> None:
    with running(ListeningServer()) as shop, running(ListeningServer()) as elsewhere:
        shop.acts = [responding(302, Location=f"{elsewhere.url}/welcome")]
        elsewhere.acts = [responding(200, WELCOME, Content_Type="text/html")]
        page.goto(demo.add_card(redirect_uri=f"{shop.url}/hop")["hosted_payment_uri"])
        type_card(page, number)
        confirm = page.get_by_role("button", name="Confirm")
        welcome = page.get_by_role("heading", name="Welcome back")
        expect(confirm.or_(welcome)).to_be_visible()
        if confirm.is_visible():
            confirm.click()

        expect(welcome).to_be_visible()
        expect(page).to_have_url(f"{elsewhere.url}/welcome")


def test_the_hosted_page_fits_every_screen(demo: Demo, open_page: OpenPage) -> None:
    page = open_page(viewport=PHONE)
    add_a_card(page, demo, CLINIC)
    for viewport in (DESKTOP, PHONE):
        page.set_viewport_size(viewport)
        assert_fits(page)
    assert_accessible(page)


def test_an_expiry_date_is_taken_as_people_write_it(demo: Demo, page: Page) -> None:
    add_a_card(page, demo, CLINIC)
    expiry = page.get_by_label("Expiry date")

    for text in EXPIRY_AS_WRITTEN:
        type_into(expiry, text)
        expect(expiry).to_have_value(text)
        expiry.press("Tab")
        expect(expiry).to_have_value("09 / 31")
    for text in ("09/2031", "2031-09"):
        paste(page, text, expiry)
        expiry.press("Tab")
        expect(expiry).to_have_value("09 / 31")
        expiry.evaluate(AUTOFILL, text)
        expect(expiry).to_have_value("09 / 31")
    expect(page.locator("#expiry-error")).to_be_hidden()
    for text in ("12/1999", "13/31", "123"):
        type_into(expiry, text)
        expiry.press("Tab")
        expect(page.locator("#expiry-error")).to_be_visible()
        expect(expiry).to_have_value("13 / 31" if text == "13/31" else text)


def test_a_card_number_is_taken_as_people_write_it(demo: Demo, page: Page) -> None:
    add_a_card(page, demo, CLINIC)
    number = page.get_by_label("Card number")

    type_into(number, "5555555555554444")
    expect(number).to_have_value("5555 5555 5555 4444")
    expect(page.locator("#status")).to_contain_text("Mastercard")
    for text in NUMBER_AS_WRITTEN:
        type_into(number, text)
        number.press("Tab")
        expect(number).to_have_value("4242 4242 4242 4242")
        expect(page.locator("#status")).to_contain_text("Visa")
        paste(page, text, number)
        number.press("Tab")
        expect(number).to_have_value("4242 4242 4242 4242")
        number.evaluate(AUTOFILL, text)
        expect(number).to_have_value("4242 4242 4242 4242")
    expect(page.locator("#number-error")).to_be_hidden()


def test_a_field_that_formats_itself_is_corrected_in_its_middle(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
    number, expiry = page.get_by_label("Card number"), page.get_by_label("Expiry date")

    type_into(number, "4242414242424242")
    number.press("Home")
    for key in (*["ArrowRight"] * 6, "Delete", "2"):
        number.press(key)
    expect(number).to_have_value("4242 4242 4242 4242")
    number.press("Home")
    for key in (*["ArrowRight"] * 4, "Delete", "Delete", "Backspace", "2", "4"):
        number.press(key)
    number.press("Tab")
    expect(number).to_have_value("4242 4242 4242 4242")

    type_into(expiry, "08/31")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "Backspace", "9"):
        expiry.press(key)
    expect(expiry).to_have_value("09/31")
    expiry.press("Tab")
    expiry.focus()
    for key in ("End", "ArrowLeft", "Backspace", "2", "Delete", "9"):
        expiry.press(key)
    expect(expiry).to_have_value("09 / 29")


@pytest.mark.parametrize("java_script_enabled", [True, False], ids=["script", "no script"])
def test_what_is_wrong_is_said_in_place(
    demo: Demo, open_page: OpenPage, java_script_enabled: bool
) -> None:
    page = open_page(java_script_enabled=java_script_enabled)
    add_a_card(page, demo)

    type_card(page, "4242424242424241", expiry="13/30", cvc="1")

    for field, message in (
        ("number", "This card number has a typing slip. Check each digit."),
        ("expiry", "Check the month of the expiry date: it goes from 01 to 12."),
        ("cvc", "The security code has 3 digits. Look on the back of your card."),
    ):
        expect(page.locator(f"#{field}-error")).to_have_text(message)
        expect(page.locator(f"#{field}")).to_have_attribute("aria-invalid", "true")
    if java_script_enabled:
        expect(page.get_by_label("Card number")).to_be_focused()
        # axe is a script.
        assert_accessible(page)
    type_card(page)
    expect_cards(page, demo, "4242")


@pytest.mark.parametrize("java_script_enabled", [True, False], ids=["script", "no script"])
def test_a_challenge_that_failed_may_be_passed(
    demo: Demo, open_page: OpenPage, java_script_enabled: bool
) -> None:
    page = open_page(viewport=PHONE, java_script_enabled=java_script_enabled)
    add_a_card(page, demo)
    type_card(page, "4000000000003220")
    expect(page.get_by_role("button", name="Fail")).to_be_visible()
    assert_fits(page)
    if java_script_enabled:
        assert_accessible(page)

    page.get_by_role("button", name="Fail").click()
    expect(page.get_by_role("alert")).to_be_visible()
    type_card(page, "4000000000003220")
    page.get_by_role("button", name="Confirm").click()

    expect_cards(page, demo, "3220")


def test_a_postal_code_is_corrected_whoever_refuses_it(demo: Demo, page: Page) -> None:
    add_a_card(page, demo, CLINIC)
    postal_code = page.get_by_label("Postal code")
    postal_code.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    type_card(page)
    expect_wrong(postal_code, "Enter the postal code of your billing address.")
    # Nothing was sent, so the number is still there.
    expect(page.get_by_label("Card number")).to_have_value("4242 4242 4242 4242")

    type_into(postal_code, "00000")
    page.get_by_role("button", name="Add card").click()
    expect(postal_code).to_have_accessible_description(re.compile("does not know this postal code"))
    expect(page.get_by_role("alert")).to_contain_text("postal code")
    expect(page.get_by_label("Card number")).to_have_value("")
    assert_accessible(page)

    page.get_by_label("Country").select_option("United Arab Emirates")
    postal_code.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    type_card(page)
    expect_cards(page, demo, "4242")


# Shows S8.
def test_the_way_back_leaves_the_link_good(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
    hosted_page = page.url
    page.get_by_role("link", name="Return without adding a card").click()

    expect_cards(page, demo)
    page.goto(hosted_page)
    type_card(page)
    expect_cards(page, demo, "4242")


# Shows F35.
def test_the_back_button_after_success_leads_to_the_shop_again(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
    type_card(page)
    expect_cards(page, demo, "4242")

    page.go_back()

    expect_cards(page, demo, "4242")


# Shows F35.
def test_a_double_click_stores_one_card(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
    type_into(page.get_by_label("Card number"), "4242424242424242")
    type_into(page.get_by_label("Expiry date"), "09/31")
    type_into(page.get_by_label("Security code"), "123")
    page.get_by_role("button", name="Add card").dblclick()

    expect_cards(page, demo, "4242")


# Shows F35.
def test_two_tabs_lead_to_one_card(demo: Demo, open_page: OpenPage) -> None:
    first = open_page()
    add_a_card(first, demo)
    second = open_page()
    second.goto(first.url)

    type_card(first)
    expect_cards(first, demo, "4242")
    type_card(second)

    expect_cards(second, demo, "4242")


@pytest.mark.parametrize(
    "path",
    [
        "{shop}/",
        "{shop}/back",
        "{api}/hosted-payments?token_id=x",
        "{api}/fake-psp/pages/nowhere",
    ],
)
def test_every_other_page_is_accessible_on_every_screen(demo: Demo, page: Page, path: str) -> None:
    page.goto(path.format(shop=demo.shop, api=demo.api))

    for viewport in (DESKTOP, PHONE):
        page.set_viewport_size(viewport)
        assert_fits(page)
    assert_accessible(page)
