"""A guest adds a card in a real browser, from the link to the hosted page and back to the shop."""

from __future__ import annotations

import re
import sys
import unicodedata
from collections.abc import Iterator
from typing import Final

import pytest
from playwright.sync_api import Locator, Page, ViewportSize, expect

from adapters.fake_psp.cards import plain
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
FULL_WIDTH: Final = {ord(each): ord(each) + 0xFEE0 for each in "0123456789/"}
"""What a Japanese keyboard types."""
FILL: Final = """(field, texts) => texts.map((text) => {
    field.value = text
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }))
    return field.value
})"""
"""What a browser and a password manager do when they fill in a field."""
WELCOME: Final = b'<!doctype html><link rel="icon" href="data:,"><h1>Welcome back</h1>'
PHONE: Final = ViewportSize(width=390, height=844)
NARROWEST: Final = ViewportSize(width=320, height=640)
DESKTOP: Final = ViewportSize(width=1280, height=900)


@pytest.fixture(scope="module")
def shared_demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


@pytest.fixture
def demo(shared_demo: Demo) -> Iterator[Demo]:
    """A demo in which the guest Ada has no cards."""
    yield shared_demo
    shared_demo.remove_cards()


def add_a_card(page: Page, demo: Demo, center: SampleCenter = SPA) -> None:
    """Start a session at a center, and go to the hosted page."""
    page.goto(demo.add_card(center)["hosted_payment_uri"])
    expect(page.get_by_role("heading", level=1)).to_have_text(center.center.name)


def type_card(
    page: Page, number: str = "4242424242424242", *, expiry: str = "09/31", cvc: str = "123"
) -> None:
    """Type the card and submit the form."""
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
    """Expect to be back in the shop. Ada must have cards with these endings, in this order."""
    expect(page).to_have_url(f"{demo.shop}/")
    # The worker may be asking the PSP when the guest comes back, who is not kept waiting then.
    wait_until(lambda: [card["last_four"] for card in demo.call("")["accounts"]] == [*endings])


def expect_wrong(field: Locator, message: str) -> None:
    """Expect a field to be marked as invalid, described by this message, and focused."""
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile(re.escape(message)))
    expect(field).to_be_focused()


# Shows S9.
def test_a_card_can_be_added_by_keyboard_alone(demo: Demo, page: Page) -> None:
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


def test_pressing_enter_moves_to_the_next_field_of_the_form(demo: Demo, page: Page) -> None:
    add_a_card(page, demo, CLINIC)
    page.get_by_label("Card number").focus()
    for name in (
        "Expiry date",
        "Security code",
        "Street and number",
        "City",
        "State",
        "Postal code",
    ):
        page.keyboard.press("Enter")
        expect(page.get_by_label(name)).to_be_focused()
    expect(page.locator("#summary")).to_be_hidden()


@pytest.mark.parametrize("number", ["4242424242424242", "4000000000003220"])
def test_the_browser_follows_a_further_redirect_by_the_shop(
    demo: Demo, page: Page, number: str
) -> None:
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
    page = open_page(viewport=NARROWEST)
    add_a_card(page, demo, CLINIC)
    for viewport in (DESKTOP, NARROWEST, PHONE):
        page.set_viewport_size(viewport)
        assert_fits(page)
    assert_accessible(page)
    pairs = [[top(page, id_) for id_ in pair] for pair in (("expiry", "cvc"), ("state", "zipcode"))]
    assert all(left == right for left, right in pairs)


def top(page: Page, id_: str) -> float:
    """Return where an element begins, from the top of the screen."""
    box = page.locator(f"#{id_}").bounding_box()
    assert box is not None
    return box["y"]


def test_the_form_accepts_an_expiry_date_in_all_usual_formats(demo: Demo, page: Page) -> None:
    add_a_card(page, demo, CLINIC)
    expiry = page.get_by_label("Expiry date")

    for text in ("9/31", "0931", "2031-09"):
        type_into(expiry, text)
        expect(expiry).to_have_value(text)
        expiry.press("Tab")
        expect(expiry).to_have_value("09 / 31")
    paste(page, "09/2031", expiry)
    expiry.press("Tab")
    expect(expiry).to_have_value("09 / 31")
    filled = expiry.evaluate(FILL, EXPIRY_AS_WRITTEN)
    assert filled == ["09 / 31"] * len(EXPIRY_AS_WRITTEN)
    expect(page.locator("#expiry-error")).to_be_hidden()
    for text in ("12/1999", "13/31", "123"):
        type_into(expiry, text)
        expiry.press("Tab")
        expect(page.locator("#expiry-error")).to_be_visible()
        expect(expiry).to_have_value("13 / 31" if text == "13/31" else text)


def test_the_form_accepts_a_card_number_in_all_usual_formats(demo: Demo, page: Page) -> None:
    add_a_card(page, demo, CLINIC)
    number = page.get_by_label("Card number")

    type_into(number, "5555555555554444")
    expect(number).to_have_value("5555 5555 5555 4444")
    expect(page.locator("#status")).to_contain_text("Mastercard")
    type_into(number, " 4242  4242 42424242 ")
    number.press("Tab")
    expect(number).to_have_value("4242 4242 4242 4242")
    expect(page.locator("#status")).to_contain_text("Visa")
    paste(page, "4242-4242-4242-4242", number)
    number.press("Tab")
    expect(number).to_have_value("4242 4242 4242 4242")
    filled = number.evaluate(FILL, NUMBER_AS_WRITTEN)
    assert filled == ["4242 4242 4242 4242"] * len(NUMBER_AS_WRITTEN)
    expect(page.locator("#number-error")).to_be_hidden()


def test_a_digit_in_the_middle_of_a_formatted_field_can_be_corrected(
    demo: Demo, page: Page
) -> None:
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
def test_each_error_is_shown_beside_its_field(
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
def test_a_guest_who_failed_a_challenge_can_type_the_card_again(
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
    expect_wrong(page.get_by_label("Card number"), "could not confirm that it is you")
    type_card(page, "4000000000003220")
    page.get_by_role("button", name="Confirm").click()

    expect_cards(page, demo, "3220")


def test_the_guest_can_correct_a_refused_postal_code(demo: Demo, page: Page) -> None:
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
    expect(page.get_by_label("Card number")).to_have_value("")
    assert_accessible(page)

    page.get_by_label("Country").select_option("United Arab Emirates")
    postal_code.press("ControlOrMeta+a")
    page.keyboard.press("Delete")
    type_card(page)
    expect_cards(page, demo, "4242")


# Shows S8.
def test_the_link_still_works_after_the_guest_returned_without_a_card(
    demo: Demo, page: Page
) -> None:
    add_a_card(page, demo)
    hosted_page = page.url
    page.get_by_role("link", name="Return without adding a card").click()

    expect_cards(page, demo)
    page.goto(hosted_page)
    type_card(page)
    expect_cards(page, demo, "4242")


# Shows F35.
def test_pressing_the_back_button_after_adding_a_card_leads_to_the_shop_again(
    demo: Demo, page: Page
) -> None:
    add_a_card(page, demo)
    type_card(page)
    expect_cards(page, demo, "4242")

    page.go_back()

    expect_cards(page, demo, "4242")


# Shows F35.
def test_a_double_click_on_the_add_card_button_stores_one_card(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
    type_into(page.get_by_label("Card number"), "4242424242424242")
    type_into(page.get_by_label("Expiry date"), "09/31")
    type_into(page.get_by_label("Security code"), "123")
    page.get_by_role("button", name="Add card").dblclick()

    expect_cards(page, demo, "4242")


def characters(*categories: str) -> list[str]:
    every = map(chr, range(sys.maxunicode + 1))
    return [each for each in every if unicodedata.category(each) in categories]


def test_the_form_reads_digits_of_any_script_in_the_same_way_as_the_server(
    demo: Demo, page: Page
) -> None:
    add_a_card(page, demo)
    digits = characters("Nd")
    texts = [f"4242 4242 4242 424{each}" for each in digits]
    assert len(digits) > 600

    filled = page.get_by_label("Card number").evaluate(FILL, texts)

    assert filled == [f"4242 4242 4242 424{unicodedata.decimal(each)}" for each in digits]
    assert filled == [plain(text) for text in texts]


def test_the_form_accepts_the_same_separators_between_digits_as_the_server(
    demo: Demo, page: Page
) -> None:
    add_a_card(page, demo)
    between = [*characters("Pd", "Zs", "Cf"), "\u2212", "\u30fc"]
    texts = [f"{each}4242{each}4242 4242 4242{each}" for each in between]

    filled = page.get_by_label("Card number").evaluate(FILL, texts)

    assert filled == ["4242 4242 4242 4242"] * len(texts)
    gaps = str.maketrans("", "", "- ")
    assert {plain(text).translate(gaps) for text in texts} == {"4242424242424242"}


@pytest.mark.parametrize("java_script_enabled", [True, False], ids=["script", "no script"])
def test_a_card_number_can_be_typed_in_the_digits_of_another_script(
    demo: Demo, open_page: OpenPage, java_script_enabled: bool
) -> None:
    page = open_page(java_script_enabled=java_script_enabled)
    add_a_card(page, demo)

    type_into(page.get_by_label("Card number"), "٤٢٤٢٤٢٤٢٤٢٤٢٤٢٤٢")
    if java_script_enabled:
        expect(page.get_by_label("Card number")).to_have_value("4242 4242 4242 4242")
    type_into(page.get_by_label("Expiry date"), "09/31".translate(FULL_WIDTH))
    type_into(page.get_by_label("Security code"), "१२३")
    page.get_by_role("button", name="Add card").click()

    expect(page).to_have_url(f"{demo.shop}/")


def test_typing_with_an_input_method_editor_does_not_duplicate_digits(
    demo: Demo, page: Page
) -> None:
    add_a_card(page, demo)
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


def test_the_add_card_button_is_visible_on_a_phone_without_scrolling(
    demo: Demo, open_page: OpenPage
) -> None:
    page = open_page(viewport=PHONE)
    add_a_card(page, demo)

    box = page.locator("main button").bounding_box()
    assert box is not None
    # Below it stands the address bar of a phone.
    assert box["y"] + box["height"] <= PHONE["height"] - 180


def test_a_short_error_stays_at_its_field_beside_the_long_error_of_another_field(
    demo: Demo, open_page: OpenPage
) -> None:
    page = open_page(viewport=PHONE)
    add_a_card(page, demo)
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


def test_clicking_a_test_card_fills_in_the_form(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
    type_card(page, "4242424242424241")
    expect(page.locator("#number-error")).to_be_visible()

    page.get_by_role("button", name="4000 0000 0000 0002").click()

    expect(page.get_by_text("4000 0000 0000 0002: The bank declines it")).to_be_visible()
    expect(page.get_by_label("Card number")).to_have_value("4000 0000 0000 0002")
    expect(page.locator("#number-error")).to_be_hidden()
    assert_accessible(page)
    page.get_by_role("button", name="5555 5555 5555 4444").click()
    page.get_by_role("button", name="Add card").click()
    expect_cards(page, demo, "4444")


def test_an_unsupported_card_brand_is_reported_at_the_card_number_field(
    demo: Demo, page: Page
) -> None:
    add_a_card(page, demo)
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
def test_the_focus_moves_to_the_only_invalid_field(
    demo: Demo, open_page: OpenPage, java_script_enabled: bool
) -> None:
    page = open_page(java_script_enabled=java_script_enabled)
    add_a_card(page, demo, CLINIC)
    type_into(page.get_by_label("Postal code"), "00000")
    type_card(page)

    expect_wrong(page.get_by_label("Postal code"), "does not know this postal code")
    # The fault is described only beside the field, not again in the summary.
    expect(page.locator("#summary")).to_be_hidden()
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


def test_the_add_card_button_shows_progress_while_the_guest_waits(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
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


def test_leaving_the_page_clears_the_sensitive_fields_of_the_card(demo: Demo, page: Page) -> None:
    add_a_card(page, demo)
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
def test_a_second_tab_tells_the_guest_that_its_card_was_not_stored(
    demo: Demo, open_page: OpenPage
) -> None:
    first, second = open_page(), open_page(viewport=PHONE)
    add_a_card(first, demo)
    second.goto(first.url)

    type_card(first)
    expect_cards(first, demo, "4242")
    type_card(second, "5555555555554444")

    expect(second.get_by_role("heading", level=2)).to_have_text("This card was not added")
    expect(second.get_by_role("main")).to_contain_text("Visa •••• 4242")
    assert_fits(second)
    assert_accessible(second)
    assert [card["last_four"] for card in demo.call("")["accounts"]] == ["4242"]
    second.get_by_role("link", name="Continue without this card").press("Enter")
    expect(second).to_have_url(f"{demo.shop}/")
