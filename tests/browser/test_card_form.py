"""The card form of the fake PSP in a real browser: what is typed, and with which keyboard."""

from __future__ import annotations

import sys
import unicodedata
from collections.abc import Iterator
from typing import Any, Final

import pytest
from playwright.sync_api import Page, ViewportSize, expect

from adapters.fake_psp.cards import plain
from entrypoints.demo.sample import CLINIC, SPA, SampleCenter
from tests.browser.pages import OpenPage, assert_accessible, assert_fits, type_into
from tests.demo import Demo, running_demo

ADDRESS: Final = {
    "address": "12 Analytical Row",
    "city": "Seattle",
    "state": "WA",
    "zipcode": "98101",
    "country_code": "US",
}
FULL_WIDTH: Final = {ord(each): ord(each) + 0xFEE0 for each in "0123456789/"}
"""What a Japanese keyboard types."""
PHONE: Final = ViewportSize(width=390, height=844)
FILL: Final = """(field, texts) => texts.map((text) => {
    field.value = text
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }))
    return field.value
})"""
"""What a browser and a password manager do when they fill in a field."""


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture(autouse=True)
def no_cards(demo: Demo) -> Iterator[None]:
    """Leave no card of Ada's."""
    yield
    demo.remove_cards()


def open_form(page: Page, demo: Demo, center: SampleCenter = SPA) -> None:
    page.goto(demo.add_card(center, ADDRESS)["hosted_payment_uri"])


def type_card(page: Page, number: str = "4242424242424242") -> None:
    """Type a card key by key, by keyboard alone, and submit it."""
    page.get_by_label("Card number").focus()
    for text in (number, "09/31", "123"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    page.get_by_role("button", name="Add card").focus()
    page.keyboard.press("Enter")


def characters(*categories: str) -> list[str]:
    every = map(chr, range(sys.maxunicode + 1))
    return [each for each in every if unicodedata.category(each) in categories]


def test_a_digit_of_any_script_is_the_same_on_both_sides(demo: Demo, page: Page) -> None:
    open_form(page, demo)
    digits = characters("Nd")
    texts = [f"4242 4242 4242 424{each}" for each in digits]
    assert len(digits) > 600

    filled = page.get_by_label("Card number").evaluate(FILL, texts)

    assert filled == [f"4242 4242 4242 424{unicodedata.decimal(each)}" for each in digits]
    assert filled == [plain(text) for text in texts]


def test_what_separates_digits_is_the_same_on_both_sides(demo: Demo, page: Page) -> None:
    open_form(page, demo)
    between = [*characters("Pd", "Zs", "Cf"), "\u2212", "\u30fc"]
    texts = [f"{each}4242{each}4242 4242 4242{each}" for each in between]

    filled = page.get_by_label("Card number").evaluate(FILL, texts)

    assert filled == ["4242 4242 4242 4242"] * len(texts)
    gaps = str.maketrans("", "", "- ")
    assert {plain(text).translate(gaps) for text in texts} == {"4242424242424242"}


@pytest.mark.parametrize("java_script_enabled", [True, False], ids=["script", "no script"])
def test_a_card_is_typed_on_the_keyboard_of_another_script(
    demo: Demo, open_page: OpenPage, java_script_enabled: bool
) -> None:
    page = open_page(java_script_enabled=java_script_enabled)
    open_form(page, demo)

    type_into(page.get_by_label("Card number"), "٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢")
    if java_script_enabled:
        expect(page.get_by_label("Card number")).to_have_value("4242 4242 4242 4242")
    type_into(page.get_by_label("Expiry date"), "09/31".translate(FULL_WIDTH))
    type_into(page.get_by_label("Security code"), "१२३")
    page.get_by_role("button", name="Add card").click()

    expect(page).to_have_url(f"{demo.shop}/")


def test_an_ime_doubles_no_digit(demo: Demo, page: Page) -> None:
    open_form(page, demo)
    number = page.get_by_label("Card number")
    number.focus()
    keyboard = page.context.new_cdp_session(page)

    composed = ""
    for digit in "42424242":
        composed += digit
        place = {"selectionStart": len(composed), "selectionEnd": len(composed)}
        keyboard.send("Input.imeSetComposition", {"text": composed, **place})
        expect(number).to_have_value(composed)
    keyboard.send("Input.insertText", {"text": "42424242".translate(FULL_WIDTH)})
    expect(number).to_have_value("4242 4242")
    page.keyboard.type("42424242")

    expect(number).to_have_value("4242 4242 4242 4242")


def test_the_button_is_in_the_first_screen_of_a_phone(demo: Demo, open_page: OpenPage) -> None:
    page = open_page(viewport=PHONE)
    open_form(page, demo)

    def box(selector: str) -> Any:  # a box, which is there
        return page.locator(selector).bounding_box()

    assert box("#expiry")["y"] == box("#cvc")["y"]
    # Below it stands the address bar of a phone.
    assert box("main button")["y"] + box("main button")["height"] <= PHONE["height"] - 180
    assert_fits(page)


def test_a_test_card_that_was_clicked_says_what_it_does(demo: Demo, open_page: OpenPage) -> None:
    page = open_page(viewport=PHONE)
    open_form(page, demo)

    page.get_by_role("button", name="4000 0000 0000 0002").click()

    expect(page.get_by_text("4000 0000 0000 0002: The bank declines it")).to_be_visible()
    assert_fits(page)
    assert_accessible(page)


def test_a_message_stands_at_its_field_however_long_the_one_beside_it_is(
    demo: Demo, open_page: OpenPage
) -> None:
    page = open_page(viewport=PHONE)
    open_form(page, demo)
    page.get_by_role("button", name="Add card").click()

    hint, error = (
        page.locator(each).evaluate(
            """(each) => {
                const text = document.createRange();
                text.selectNodeContents(each);
                return text.getBoundingClientRect();
            }"""
        )
        for each in ("#cvc-hint", "#cvc-error")
    )

    assert 0 <= error["top"] - hint["bottom"] < 12


def test_the_button_of_a_test_card_fills_in_the_form(demo: Demo, page: Page) -> None:
    open_form(page, demo)
    type_card(page, "4242424242424241")
    expect(page.locator("#number-error")).to_be_visible()

    page.get_by_role("button", name="5555 5555 5555 4444").click()

    expect(page.get_by_label("Card number")).to_have_value("5555 5555 5555 4444")
    expect(page.locator("#number-error")).to_be_hidden()
    assert_accessible(page)
    page.get_by_role("button", name="Add card").click()
    expect(page).to_have_url(f"{demo.shop}/")


def test_fields_side_by_side_stay_in_line(demo: Demo, open_page: OpenPage) -> None:
    page = open_page(viewport=PHONE)
    open_form(page, demo, CLINIC)

    tops = page.evaluate("""
        ["expiry", "cvc", "state", "zipcode"].map((id) =>
            document.getElementById(id).getBoundingClientRect().top)
    """)

    assert tops[0] == tops[1]
    assert tops[2] == tops[3]


def test_a_brand_that_is_not_taken_is_told_at_the_number(demo: Demo, page: Page) -> None:
    open_form(page, demo)
    number = page.get_by_label("Card number")

    page.keyboard.press("Tab")
    number.focus()
    page.keyboard.type("378282246310005")
    page.keyboard.press("Tab")

    expect(number).to_have_accessible_description(
        "Only Visa and Mastercard are accepted here. Check the first digits, or use another card."
    )
    expect(number).to_have_attribute("aria-invalid", "true")
    assert_accessible(page)
    type_into(number, "5555555555554444")
    expect(page.locator("#number-error")).to_be_hidden()


@pytest.mark.parametrize("java_script_enabled", [True, False], ids=["script", "no script"])
def test_the_summary_is_read_first_after_a_refused_address(
    demo: Demo, open_page: OpenPage, java_script_enabled: bool
) -> None:
    page = open_page(java_script_enabled=java_script_enabled)
    open_form(page, demo, CLINIC)
    type_into(page.get_by_label("Postal code"), "00000")
    page.get_by_label("Card number").focus()
    for text in ("4242424242424242", "09/31", "123"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    page.get_by_role("button", name="Add card").focus()
    page.keyboard.press("Enter")

    expect(page.get_by_role("alert")).to_be_focused()
    expect(page).to_have_title("Error: Add a card – Clear Skin Clinic")
    for name, text in (
        ("Card number", "For your safety, type the card number again."),
        ("Security code", "For your safety, type the security code again. 3 digits, on the back"),
    ):
        expect(page.get_by_label(name)).to_have_value("")
        expect(page.get_by_label(name)).to_have_accessible_description(text)
    if java_script_enabled:
        assert_accessible(page)
        type_into(page.get_by_label("Card number"), "4242424242424242")
        page.keyboard.press("Tab")
        expect(page.locator("#number-error")).to_be_hidden()


def test_the_button_says_what_the_guest_waits_for(demo: Demo, page: Page) -> None:
    open_form(page, demo)
    # Without content, the browser stays on the page.
    page.route("**/fake-psp/pages/*", lambda route: route.fulfill(status=204), times=1)

    type_card(page)

    button = page.locator("main button")
    expect(button).to_have_text("Saving your card…")
    expect(button).to_be_disabled()
    expect(page.get_by_role("status")).to_have_text("Saving your card…")
    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(button).to_have_text("Add card")
    expect(button).to_be_enabled()
    button.click()
    expect(page).to_have_url(f"{demo.shop}/")


def test_a_page_that_is_left_keeps_neither_number_nor_security_code(demo: Demo, page: Page) -> None:
    open_form(page, demo)
    for label, text in (("Card number", "4242424242424242"), ("Security code", "123")):
        type_into(page.get_by_label(label), text)
    type_into(page.get_by_label("Expiry date"), "09/31")
    expect(page.get_by_role("status")).to_have_text("Visa card")

    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")

    expect(page.get_by_label("Card number")).to_have_value("")
    expect(page.get_by_label("Security code")).to_have_value("")
    expect(page.get_by_label("Expiry date")).to_have_value("09/31")
    expect(page.get_by_role("status")).to_have_text("")


# Shows F35.
def test_a_second_tab_says_that_its_card_is_not_kept(demo: Demo, open_page: OpenPage) -> None:
    first, second = open_page(), open_page(viewport=PHONE)
    open_form(first, demo)
    second.goto(first.url)

    type_card(first)
    expect(first).to_have_url(f"{demo.shop}/")
    type_card(second, "5555555555554444")

    expect(second.get_by_role("heading", level=2)).to_have_text("This card was not added")
    expect(second.get_by_role("main")).to_contain_text("Visa •••• 4242")
    assert_fits(second)
    assert_accessible(second)
    assert [card["last_four"] for card in demo.call("")["accounts"]] == ["4242"]
    second.get_by_role("link", name="Continue without this card").press("Enter")
    expect(second).to_have_url(f"{demo.shop}/")
