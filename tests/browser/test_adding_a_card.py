"""A guest adds a card in a real browser, from the link to the hosted page and back to the shop."""

from __future__ import annotations

import re
import sys
import unicodedata
from typing import Final

from playwright.sync_api import Locator, Page, expect

from adapters.fake_psp.cards import plain
from tests.browser.pages import PHONE, OpenPage, assert_accessible, type_into
from tests.browser.served import SHOP, address_of, opened, send_card
from tests.installation import CHALLENGED_CARD, GOOD_CARD, Installation
from tests.listening import ListeningServer, responding, running

EXPIRY_AS_WRITTEN: Final = (
    *("09 / 31", "9/31", "09-31", "9 31", "0931", "931"),
    *("09/2031", "092031", "2031-09"),
)
NUMBER_AS_WRITTEN: Final = (
    *("4242424242424242", "4242-4242-4242-4242"),
    *(" 4242  4242 42424242 ", "4242\u00a04242\u00a04242\u00a04242"),
)
GROUPED: Final = "4242 4242 4242 4242"
FULL_WIDTH: Final = {ord(each): ord(each) + 0xFEE0 for each in "0123456789/"}
"""What a Japanese keyboard types."""
FILL: Final = """(field, texts) => texts.map((text) => {
    field.value = text
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind, { bubbles: true }))
    return field.value
})"""
"""What a browser and a password manager do when they fill in a field."""
WELCOME: Final = b'<!doctype html><link rel="icon" href="data:,"><h1>Welcome back</h1>'


def expect_cards(page: Page, served: Installation, *endings: str) -> None:
    """Expect to be back in the shop. The guest must have cards with these endings, in this order."""
    expect(page).to_have_url(address_of(served, SHOP))
    assert [account.last_four for account in served.accounts()] == [*endings]


def expect_wrong(field: Locator, message: str) -> None:
    """Expect a field to be marked as invalid, described by this message, and focused."""
    expect(field).to_have_attribute("aria-invalid", "true")
    expect(field).to_have_accessible_description(re.compile(re.escape(message)))
    expect(field).to_be_focused()


# Shows S9.
def test_a_card_can_be_added_by_keyboard_alone(served: Installation, page: Page) -> None:
    opened(served, page)
    page.get_by_label("Card number").focus()
    for name, text in (
        ("Card number", GOOD_CARD),
        ("Expiry date", "09/31"),
        ("Security code", "123"),
        ("Street and number", ""),
        ("City", "Berlin"),
        ("State", ""),
        ("Postal code", ""),
    ):
        expect(page.get_by_label(name)).to_be_focused()
        page.keyboard.type(text)
        # As the key on a phone that says "next".
        page.keyboard.press("Enter")
    expect(page.get_by_label("Country")).to_be_focused()
    expect(page.locator("#summary")).to_be_hidden()
    page.keyboard.press("Tab")
    expect(page.get_by_role("button", name="Add card")).to_be_focused()
    page.keyboard.press("Enter")

    expect_cards(page, served, "4242")


def test_the_browser_follows_a_redirect_by_the_shop_to_another_site(
    served: Installation, page: Page
) -> None:
    welcome = page.get_by_role("heading", name="Welcome back")
    with running(ListeningServer()) as shop, running(ListeningServer()) as elsewhere:
        shop.acts = [responding(302, Location=f"{elsewhere.url}/welcome")]
        elsewhere.acts = [responding(200, WELCOME, Content_Type="text/html")]
        opened(served, page, redirect_uri=f"{shop.url}/hop")
        send_card(page)
        expect(welcome).to_be_visible()

        opened(served, page, redirect_uri=f"{shop.url}/hop")
        send_card(page, CHALLENGED_CARD)
        page.get_by_role("button", name="Confirm").click()
        expect(welcome).to_be_visible()


def test_the_card_form_fits_the_small_screen_of_a_phone(
    served: Installation, open_page: OpenPage
) -> None:
    served.configure()
    page = open_page(viewport=PHONE)
    opened(served, page)
    button = page.locator("main button").bounding_box()
    assert button is not None
    # Below it stands the address bar of a phone.
    assert button["y"] + button["height"] <= PHONE["height"] - 180

    page.get_by_role("button", name="Add card").click()

    expect(page.locator("#cvc-error")).to_be_visible()
    texts = """(ids) => ids.map((id) => {
        const text = document.createRange()
        text.selectNodeContents(document.getElementById(id))
        return text.getBoundingClientRect()
    })"""
    expiry, cvc, hint, error = page.evaluate(texts, ["expiry", "cvc", "cvc-hint", "cvc-error"])
    assert expiry["top"] == cvc["top"]
    # A short error stays at its field beside the long error of another field.
    assert 0 <= error["top"] - hint["bottom"] < 12


def characters(*categories: str) -> list[str]:
    every = map(chr, range(sys.maxunicode + 1))
    return [each for each in every if unicodedata.category(each) in categories]


def test_the_form_reads_a_card_number_in_the_same_way_as_the_server(
    served: Installation, page: Page
) -> None:
    opened(served, page)
    number = page.get_by_label("Card number")
    digits = characters("Nd")
    assert len(digits) > 600
    ends = [f"4242 4242 4242 424{each}" for each in digits]
    between = [*characters("Pd", "Zs", "Cf"), "\u2212", "\u30fc"]
    separated = [f"{each}4242{each}4242 4242 4242{each}" for each in between]

    filled = number.evaluate(FILL, ends)
    assert filled == [f"4242 4242 4242 424{unicodedata.decimal(each)}" for each in digits]
    assert filled == [plain(text) for text in ends]
    # In Unicode 16, this 0 follows the 9 of another script. Older Pythons do not know these digits.
    assert number.evaluate(FILL, ["4242 4242 4242 424\U000116da"]) == ["4242 4242 4242 4240"]
    assert {*number.evaluate(FILL, [*separated, *NUMBER_AS_WRITTEN])} == {GROUPED}
    gaps = str.maketrans("", "", "- ")
    assert {plain(text).translate(gaps) for text in separated} == {GOOD_CARD}
    expect(page.locator("#number-error")).to_be_hidden()


def test_the_form_formats_what_is_typed_or_pasted(served: Installation, page: Page) -> None:
    opened(served, page)
    number, expiry = page.get_by_label("Card number"), page.get_by_label("Expiry date")

    type_into(number, "5555555555554444")
    expect(number).to_have_value("5555 5555 5555 4444")
    expect(page.locator("#status")).to_contain_text("Mastercard")
    city = page.get_by_label("City")
    city.fill("4242-4242-4242-4242")
    for field, keys in ((city, "ax"), (number, "av")):
        for key in keys:
            field.press(f"ControlOrMeta+{key}")
    number.press("Tab")
    expect(number).to_have_value(GROUPED)
    expect(page.locator("#status")).to_contain_text("Visa")

    type_into(expiry, "9/31")
    expect(expiry).to_have_value("9/31")
    expiry.press("Tab")
    expect(expiry).to_have_value("09 / 31")
    written = [*EXPIRY_AS_WRITTEN, "09/31".translate(FULL_WIDTH)]
    assert {*expiry.evaluate(FILL, written)} == {"09 / 31"}
    expect(page.locator("#expiry-error")).to_be_hidden()
    assert page.get_by_label("Security code").evaluate(FILL, ["१२३"]) == ["123"]
    expect(page.locator("#cvc-error")).to_be_hidden()
    wrong = ["12/1999", "123", "13 / 31"]
    for text in wrong:
        assert expiry.evaluate(FILL, [text]) == [text]
        expect(page.locator("#expiry-error")).to_be_visible()


def test_a_digit_in_the_middle_of_a_formatted_field_can_be_corrected(
    served: Installation, page: Page
) -> None:
    opened(served, page)
    number, expiry = page.get_by_label("Card number"), page.get_by_label("Expiry date")

    type_into(number, "4242414242424242")
    for key in ("Home", *["ArrowRight"] * 6, "Delete", "2"):
        number.press(key)
    expect(number).to_have_value(GROUPED)
    for key in ("Home", *["ArrowRight"] * 4, "Delete", "Delete", "Backspace", "2", "4", "Tab"):
        number.press(key)
    expect(number).to_have_value(GROUPED)

    type_into(expiry, "08/31")
    for key in ("ArrowLeft", "ArrowLeft", "ArrowLeft", "Backspace", "9"):
        expiry.press(key)
    expect(expiry).to_have_value("09/31")
    expiry.press("Tab")
    for key in ("End", "ArrowLeft", "Backspace", "2", "Delete", "9"):
        expiry.press(key)
    expect(expiry).to_have_value("09 / 29")


def test_typing_with_an_input_method_editor_does_not_duplicate_digits(
    served: Installation, page: Page
) -> None:
    opened(served, page)
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

    expect(number).to_have_value(GROUPED)


def test_each_error_is_shown_beside_its_field_until_the_field_is_corrected(
    served: Installation, page: Page
) -> None:
    # Without a billing address, the button is below the last field: a message about the field must not
    # move the button away during the click.
    served.configure()
    opened(served, page)
    number = page.get_by_label("Card number")
    type_into(number, "378282246310005")
    page.keyboard.press("Tab")
    expect(number).to_have_attribute("aria-invalid", "true")
    expect(number).to_have_accessible_description(
        "Only Visa and Mastercard are accepted here. Check the first digits, or use another card."
    )

    send_card(page, "4242424242424241", expiry="13/30", cvc="1")
    for field, message in (
        ("number", "This card number has a typing slip. Check each digit."),
        ("expiry", "Check the month of the expiry date: it goes from 01 to 12."),
        ("cvc", "The security code has 3 digits. Look on the back of your card."),
    ):
        expect(page.locator(f"#{field}-error")).to_have_text(message)
        expect(page.locator(f"#{field}")).to_have_attribute("aria-invalid", "true")
    expect(number).to_be_focused()

    # A click on a test card fills in the form.
    page.get_by_role("button", name="5555 5555 5555 4444").click()
    expect(page.get_by_text("5555 5555 5555 4444: ")).to_be_visible()
    expect(number).to_have_value("5555 5555 5555 4444")
    expect(page.locator(".error:visible")).to_have_count(0)
    page.get_by_role("button", name="Add card").click()
    expect_cards(page, served, "4444")


def test_the_guest_can_correct_a_refused_postal_code(served: Installation, page: Page) -> None:
    opened(served, page)
    number, postal_code = page.get_by_label("Card number"), page.get_by_label("Postal code")
    postal_code.fill("")
    send_card(page)
    expect_wrong(postal_code, "Enter the postal code of your billing address.")
    # Nothing was sent, so the number is still there.
    expect(number).to_have_value(GROUPED)

    postal_code.fill("00000")
    send_card(page)
    expect_wrong(postal_code, "does not know this postal code")
    # The fault is described only beside the field, not again in the summary.
    expect(page.locator("#summary")).to_be_hidden()
    expect(page).to_have_title("Error: Add a card – Harbor Spa")
    expect(number).to_have_value("")
    expect(number).to_have_accessible_description("For your safety, type the card number again.")
    expect(page.get_by_label("Security code")).to_have_accessible_description(
        "For your safety, type the security code again. 3 digits, on the back"
    )
    assert_accessible(page)

    page.get_by_label("Country").select_option("United Arab Emirates")
    postal_code.fill("")
    send_card(page)
    expect_cards(page, served, "4242")


def test_a_card_can_be_added_without_javascript(served: Installation, open_page: OpenPage) -> None:
    page = open_page(java_script_enabled=False)
    opened(served, page)
    number = page.get_by_label("Card number")
    send_card(page, "4242424242424241", expiry="13/30", cvc="1")
    for field in ("number", "expiry", "cvc"):
        expect(page.locator(f"#{field}-error")).to_be_visible()
    expect(page.locator("#summary")).to_be_focused()

    send_card(page, CHALLENGED_CARD)
    page.get_by_role("button", name="Fail").click()
    expect_wrong(number, "could not confirm that it is you")
    # In the digits of other scripts.
    send_card(page, "٤٠٠٠٠٠٠٠٠٠٠٠٣٢٢٠", expiry="09/31".translate(FULL_WIDTH), cvc="१२३")
    page.get_by_role("button", name="Confirm").click()

    expect_cards(page, served, "3220")


# Shows S8, F35.
def test_the_back_button_leads_to_the_form_only_until_a_card_is_stored(
    served: Installation, page: Page
) -> None:
    opened(served, page)
    page.get_by_role("link", name="Return without adding a card").click()
    expect_cards(page, served)
    page.go_back()
    page.get_by_role("button", name="4242 4242 4242 4242").click()
    page.get_by_role("button", name="Add card").dblclick()
    expect_cards(page, served, "4242")

    page.go_back()

    expect_cards(page, served, "4242")


def test_the_form_shows_that_the_card_is_being_saved_and_clears_it_when_the_guest_leaves(
    served: Installation, page: Page
) -> None:
    opened(served, page)
    button, status = page.locator("main button"), page.locator("#status")
    # Without content, the browser stays on the page.
    page.route("**/fake-psp/pages/*", lambda route: route.fulfill(status=204), times=1)
    send_card(page)
    expect(button).to_have_text("Saving your card…")
    expect(button).to_be_disabled()
    expect(status).to_have_text("Saving your card…")

    page.evaluate("dispatchEvent(new PageTransitionEvent('pagehide', { persisted: true }))")
    expect(page.get_by_label("Card number")).to_have_value("")
    expect(page.get_by_label("Security code")).to_have_value("")
    expect(page.get_by_label("Expiry date")).to_have_value("09 / 31")
    expect(status).to_have_text("")

    page.evaluate("dispatchEvent(new PageTransitionEvent('pageshow', { persisted: true }))")
    expect(button).to_have_text("Add card")
    send_card(page)
    expect_cards(page, served, "4242")
