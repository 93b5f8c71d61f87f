"""Guests read every page in their language in a real browser."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal

import pytest
from playwright.sync_api import Page, expect

from adapters import catalogs
from adapters.catalogs import LANGUAGES, Catalog, catalog
from adapters.fake_psp.psp import MAX_CARD_ATTEMPTS
from adapters.psp_suite.samples import a_uuid
from domain.permissions import Permission
from tests.browser.pages import PHONE, OpenPage, assert_fits, assert_good, type_into
from tests.browser.served import ADDRESS, SHOP, address_of, link, opened, send_card, started
from tests.builders import CENTER_ID, a_center, a_shipped_consent
from tests.installation import (
    CHALLENGED_CARD,
    DECLINED_CARD,
    GOOD_CARD,
    OTHER_GOOD_CARD,
    Installation,
    Trouble,
)

OUT_OF_ORDER: Final = "4000000000000119"

# What guests may come to see, each as a way to get there.


def form(served: Installation, page: Page, locale: str) -> None:
    opened(served, page, locale)
    page.locator("details summary").click()


def faults(served: Installation, page: Page, locale: str) -> None:
    form(served, page, locale)
    page.locator("#address").fill("")
    page.locator("#country_code").select_option("")
    page.locator("[type=submit]").click()
    expect(page.locator("#summary li")).to_have_count(5)


def refusal(served: Installation, page: Page, locale: str) -> None:
    opened(served, page, locale)
    send_card(page, DECLINED_CARD)
    expect(page.locator("#number-error")).to_be_visible()


def challenge(served: Installation, page: Page, locale: str) -> None:
    opened(served, page, locale)
    send_card(page, CHALLENGED_CARD)
    page.wait_for_url("**/challenge")


def ended(served: Installation, page: Page, locale: str) -> None:
    session = opened(served, page, locale)
    served.psp.close_page(served.page_reference(session))
    page.reload()


def button(served: Installation, page: Page, locale: str) -> None:
    session = started(served, locale, link_minutes=43_200)
    served.clock.advance(timedelta(hours=25))
    page.goto(link(served, session))


def expired(served: Installation, page: Page, locale: str) -> None:
    served.container.set_center()(CENTER_ID, {"contact": "tel:+49301234567"})
    session = started(served, locale)
    served.clock.advance(timedelta(minutes=31))
    page.goto(link(served, session))


def cancelled(served: Installation, page: Page, locale: str) -> None:
    page.goto(link(served, served.cancel_session(started(served, locale))))


def unreachable(served: Installation, page: Page, locale: str) -> None:
    served.provider.have(Trouble.BEFORE_IT_ACTED)
    opened(served, page, locale)


def paused(served: Installation, page: Page, locale: str) -> None:
    session = started(served, locale)
    refused = served.opened_session(billing_info=ADDRESS)
    for _ in range(2):
        served.type_card(refused, DECLINED_CARD)
    served.settle(refused.token_id)
    page.goto(link(served, session))


def out_of_order(served: Installation, page: Page, locale: str) -> None:
    opened(served, page, locale)
    send_card(page, OUT_OF_ORDER)
    expect(page.locator("#number")).to_have_count(0)


def other_kept(served: Installation, page: Page, locale: str) -> None:
    served.type_card(opened(served, page, locale))
    send_card(page, OTHER_GOOD_CARD)
    expect(page.locator("#number")).to_have_count(0)


def too_many(served: Installation, page: Page, locale: str) -> None:
    session = opened(served, page, locale)
    for _ in range(MAX_CARD_ATTEMPTS):
        served.type_card(session, DECLINED_CARD)
    page.reload()


def at(path: str) -> Callable[[Installation, Page, str], None]:
    """Return the way to an address at which the language of the browser counts."""

    def go(served: Installation, page: Page, locale: str) -> None:
        page.set_extra_http_headers({"Accept-Language": locale})
        page.goto(address_of(served, path))

    return go


TEMPLATES: Final = (faults, challenge, ended, button, expired)
"""Ways to a page of each template."""
WAYS: Final = (
    *(form, refusal, out_of_order, other_kept, at("/fake-psp/pages/page_x"), *TEMPLATES),
    # After the last, no further card can be added.
    *(cancelled, unreachable, at(f"/hosted-payments?token_id={a_uuid(404)}"), at("/nowhere")),
    *(too_many, paused),
)


def words_on(page: Page) -> str:
    """Return all text that a guest reads or hears on a page, in lines."""
    attributes = page.evaluate(
        """() => [...document.querySelectorAll("[aria-label],[alt],[title],[placeholder]")].flatMap(
            (it) => ["aria-label", "alt", "title", "placeholder"].map((name) => it.getAttribute(name)))"""
    )
    # A list of countries comes from the browser.
    text = page.evaluate(
        """() => {
            const shown = document.body.cloneNode(true);
            for (const it of shown.querySelectorAll("option:not([value='']), script")) it.remove();
            return shown.textContent;
        }"""
    )
    return "\n".join(filter(None, (page.title(), text, *attributes)))


def pseudo(words: Mapping[str, Any]) -> dict[str, Any]:
    """Return the words of a pseudo-locale, which are 50% longer and contain no ASCII letter."""
    return {
        name: (
            pseudo(each)
            if isinstance(each, Mapping)
            else each
            if name == "direction"
            else re.sub(r"(\{\w+\})|[A-Za-z]", lambda it: it[1] or "ĕŏ"[ord(it[0]) % 2], each)
            + "ă" * (len(each) // 2)
        )
        for name, each in words.items()
    }


# Shows S9.
def test_every_word_on_every_page_comes_from_a_translation_catalog(
    served: Installation, open_page: OpenPage, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = Catalog("en-XA", pseudo(catalog("en")._words))
    monkeypatch.setattr(catalogs, "_read", lambda _: words)
    served.has_center(a_center(name="Ωμέγα"))
    served.caller = served.a_caller(Permission.GUESTS_ADD)
    served.container.set_consent()(CENTER_ID, "en", own="{center}: ΩΩΩ.")
    page = open_page(viewport=PHONE)

    for way in WAYS:
        way(served, page, "en")
        names = r"Visa|Mastercard|Fake PSP|\+49301234567"
        left = re.findall(r".*[A-Za-z].*", re.sub(names, "", words_on(page)))
        assert left == [], way
        assert_fits(page, PHONE["width"])
        served.provider.recover()


# Shows S9.
@pytest.mark.parametrize(
    ("language", "direction", "color_scheme"), [("en", "ltr", "dark"), ("ar", "rtl", "light")]
)
def test_every_page_is_accessible_in_left_to_right_and_right_to_left_languages(
    served: Installation,
    page: Page,
    language: str,
    direction: str,
    color_scheme: Literal["light", "dark"],
) -> None:
    for way in TEMPLATES:
        way(served, page, language)
        expect(page.locator("html")).to_have_attribute("lang", language)
        expect(page.locator("h1")).to_have_css("direction", direction)
        assert_good(page, color_scheme)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_a_card_can_be_typed_to_the_end_on_a_phone_in_every_language(
    served: Installation, open_page: OpenPage, language: str
) -> None:
    t, page = catalog(language), open_page(viewport=PHONE)
    session = opened(served, page, language)
    expect(page.locator("html")).to_have_attribute("lang", language)
    page.locator("details summary").click()
    numbers = page.locator("td:first-child bdi")
    assert numbers.evaluate_all("all => all.every(it => it.getClientRects().length === 1)")
    # The names of countries are the browser's own.
    germany = {"ar": "ألمانيا", "de": "Deutschland", "en": "Germany", "es": "Alemania"}
    germany |= {"fr": "Allemagne", "it": "Germania", "nl": "Duitsland", "pt": "Alemanha"}
    assert page.locator("option[value=DE]").text_content() == germany[language]
    # A text is written in its own direction, whatever the language of the page.
    for address, direction in (("شارع 1", "rtl"), ("1 St", "ltr")):
        page.locator("#address").fill(address)
        assert page.locator(f"#address:dir({direction})").is_visible()
    page.locator("[type=submit]").click()
    expect(page.locator("#summary li")).to_have_count(3)
    assert_fits(page, PHONE["width"])

    for key, typed in (("number", GOOD_CARD), ("expiry", "0931"), ("cvc", "123")):
        field = page.get_by_label(t.text(f"form.{key}"))
        type_into(field, typed)
        # Digits of a card run from left to right in every language.
        expect(field).to_have_css("direction", "ltr")
    page.get_by_role("button", name=t.text("form.button")).click()
    page.wait_for_url(f"**{SHOP}")

    stored = served.session(session.token_id)
    (given,) = served.consents(served.account(stored.account_id))
    assert (given.language, given.text) == (language, a_shipped_consent(language=language).text)
