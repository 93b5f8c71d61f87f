"""Guests read every page in their language in a real browser."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import pytest
from playwright.sync_api import Page, ViewportSize, expect
from typing_extensions import override

from adapters import catalogs
from adapters.catalogs import LANGUAGES, Catalog, catalog, shipped_reservation_texts
from adapters.fake_psp.psp import MAX_CARD_ATTEMPTS
from adapters.psp_suite.samples import a_uuid
from domain.permissions import Permission
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from tests.browser.pages import OpenPage, assert_accessible, assert_fits, type_into
from tests.builders import CENTER_ID, a_center, a_shipped_consent
from tests.installation import (
    CHALLENGED_CARD,
    DECLINED_CARD,
    OTHER_GOOD_CARD,
    Installation,
    Trouble,
)
from tests.listening import ListeningServer, responding, running
from tests.programs import free_port

PHONE: Final = ViewportSize(width=390, height=844)
ADDRESS: Final = {"address": "Hauptstr. 1", "country_code": "DE", "zipcode": "10115"}
SHOP: Final = "/back"
"""Nothing is there but a page that says so. It names an icon, so no browser asks for another."""
OUT_OF_ORDER: Final = "4000000000000119"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietHandler(WSGIRequestHandler):
    @override
    def log_message(self, *_: object) -> None: ...


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Installation]:
    """An installation that browsers reach. Its center has every language switched on."""
    with serving(tmp_path) as installed:
        yield installed


@pytest.fixture
def asking(tmp_path: Path) -> Iterator[Installation]:
    """The same installation, with a PSP whose page does not show the consent."""
    with serving(tmp_path, shows_consent=False) as installed:
        yield installed


@contextmanager
def serving(folder: Path, **capabilities: bool) -> Iterator[Installation]:
    port = free_port()
    base_url = f"http://127.0.0.1:{port}"
    limits = "guest=off/2,guest-everywhere=off/off,caller=off/off,center=off/off"
    installed = Installation(
        folder,
        base_url=base_url,
        capabilities=capabilities,
        CARDONFILE_CARD_TESTING_LIMITS=limits,
    )
    installed.configure(avs=True, link_minutes=43_200)
    for language in LANGUAGES:
        installed.container.set_consent()(CENTER_ID, language)
    app = installed.container.app()
    with make_server("127.0.0.1", port, app, _Server, _QuietHandler) as server:
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        yield installed
        server.shutdown()
        serving.join()
    installed.close()


def link(served: Installation, session: CardSession) -> str:
    base_url = served.settings.public_base_url
    return f"{base_url}/hosted-payments?{urlencode({'key': session.link_key})}"


def started(served: Installation, locale: str, **changes: Any) -> CardSession:
    uri = f"{served.settings.public_base_url}{SHOP}"
    return served.add_card(locale=locale, redirect_uri=uri, billing_info=ADDRESS, **changes)


# What guests may come to see, each as a way to get there.


def form(served: Installation, page: Page, locale: str) -> None:
    page.goto(link(served, started(served, locale)))
    page.locator("details summary").click()


def faults(served: Installation, page: Page, locale: str) -> None:
    form(served, page, locale)
    page.locator("#address").fill("")
    page.locator("#country_code").select_option("")
    page.locator("[type=submit]").click()
    expect(page.locator("#summary li")).to_have_count(6 - 1)


def refusal(served: Installation, page: Page, locale: str) -> None:
    page.goto(link(served, started(served, locale)))
    type_card(page, DECLINED_CARD)
    expect(page.locator("#number-error")).to_be_visible()


def challenge(served: Installation, page: Page, locale: str) -> None:
    page.goto(link(served, started(served, locale)))
    type_card(page, CHALLENGED_CARD)
    page.wait_for_url("**/challenge")


def ended(served: Installation, page: Page, locale: str) -> None:
    session = started(served, locale)
    page.goto(link(served, session))
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
    session = started(served, locale)
    served.use_cases.cancel_session(
        served.caller, guest_id=session.guest_id, token_id=session.token_id
    )
    page.goto(link(served, session))


def unreachable(served: Installation, page: Page, locale: str) -> None:
    session = started(served, locale)
    served.provider.have(Trouble.BEFORE_IT_ACTED)
    page.goto(link(served, session))


def paused(served: Installation, page: Page, locale: str) -> None:
    session = started(served, locale)
    refused = served.opened_session(billing_info=ADDRESS)
    for _ in range(2):
        served.type_card(refused, DECLINED_CARD)
    served.settle(refused.token_id)
    page.goto(link(served, session))


def out_of_order(served: Installation, page: Page, locale: str) -> None:
    page.goto(link(served, started(served, locale)))
    type_card(page, OUT_OF_ORDER)
    page.wait_for_load_state()


def other_kept(served: Installation, page: Page, locale: str) -> None:
    session = started(served, locale)
    page.goto(link(served, session))
    served.type_card(session)
    type_card(page, OTHER_GOOD_CARD)
    page.wait_for_load_state()


def too_many(served: Installation, page: Page, locale: str) -> None:
    session = started(served, locale)
    page.goto(link(served, session))
    for _ in range(MAX_CARD_ATTEMPTS):
        served.type_card(session, DECLINED_CARD)
    page.reload()


def no_page(served: Installation, page: Page, locale: str) -> None:
    page.set_extra_http_headers({"Accept-Language": locale})
    page.goto(f"{served.settings.public_base_url}/fake-psp/pages/page_x")


def unknown(served: Installation, page: Page, locale: str) -> None:
    page.set_extra_http_headers({"Accept-Language": locale})
    page.goto(f"{served.settings.public_base_url}/hosted-payments?token_id={a_uuid(404)}")


def nowhere(served: Installation, page: Page, locale: str) -> None:
    page.set_extra_http_headers({"Accept-Language": locale})
    page.goto(f"{served.settings.public_base_url}/nowhere")


WAYS: Final[Mapping[str, Callable[[Installation, Page, str], None]]] = {
    each.__name__: each
    for each in (
        *(form, faults, refusal, challenge, ended, button),
        *(out_of_order, other_kept, no_page),
        # After the last, no further card can be added.
        *(expired, cancelled, unreachable, unknown, nowhere, too_many, paused),
    )
}


def type_card(page: Page, number: str, *, expiry: str = "09/31", cvc: str = "123") -> None:
    for field, text in (("#number", number), ("#expiry", expiry), ("#cvc", cvc)):
        type_into(page.locator(field), text)
    page.locator("[type=submit]").click()


def each_page(served: Installation, page: Page, locale: str, *names: str) -> Iterator[str]:
    """Show one page after another. Yield the name of each page."""
    for name in names or WAYS:
        WAYS[name](served, page, locale)
        yield name
        served.provider.recover()


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

    for name in each_page(served, page, "en"):
        names = r"Visa|Mastercard|Fake PSP|\+49301234567"
        left = re.findall(r".*[A-Za-z].*", re.sub(names, "", words_on(page)))
        assert left == [], name
        assert_fits(page)


# Shows S9.
def test_every_page_is_accessible_in_a_right_to_left_language(
    served: Installation, open_page: OpenPage
) -> None:
    page = open_page(viewport=PHONE)
    for name in each_page(served, page, "ar"):
        assert page.locator("html").get_attribute("lang") == "ar", name
        assert page.evaluate("getComputedStyle(document.querySelector('h1')).direction") == "rtl"
        assert_accessible(page)
        assert_fits(page)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
def test_the_card_form_fits_on_a_phone_in_every_language(
    served: Installation, open_page: OpenPage, language: str
) -> None:
    page = open_page(viewport=PHONE)
    for _ in each_page(served, page, language, "form", "faults"):
        assert page.locator("html").get_attribute("lang") == language
        assert_fits(page)
    numbers = page.locator("td:first-child bdi")
    assert numbers.evaluate_all("all => all.every(it => it.getClientRects().length === 1)")
    # The names of countries are the browser's own.
    germany = {"ar": "ألمانيا", "de": "Deutschland", "en": "Germany", "es": "Alemania"}
    germany |= {"fr": "Allemagne", "it": "Germania", "nl": "Duitsland", "pt": "Alemanha"}
    assert page.locator("option[value=DE]").text_content() == germany[language]


def test_a_card_can_be_added_in_a_right_to_left_language(
    served: Installation, open_page: OpenPage
) -> None:
    t = catalog("ar")
    page = open_page(viewport=PHONE)
    session = started(served, "ar")
    page.goto(link(served, session))
    for key, typed in (("number", "4242424242424242"), ("expiry", "0931"), ("cvc", "123")):
        field = page.get_by_label(t.text(f"form.{key}"))
        type_into(field, typed)
        # Digits of a card run from left to right in every language.
        assert field.evaluate("it => getComputedStyle(it).direction") == "ltr"
    expect(page.locator("#number")).to_have_value("4242 4242 4242 4242")
    page.get_by_role("button", name=t.text("form.button")).click()
    page.wait_for_url(f"**{SHOP}")

    stored = served.session(session.token_id)
    assert stored.status is SessionStatus.COMPLETED
    (given,) = served.use_cases.read_consent(
        served.caller, guest_id=stored.guest_id, account_id=str(stored.account_id)
    )
    assert (given.language, given.text) == ("ar", a_shipped_consent(language="ar").text)


def test_a_latin_address_is_written_from_left_to_right_on_an_arabic_page(
    served: Installation, page: Page
) -> None:
    page.goto(link(served, started(served, "ar")))
    address = page.locator("#address")
    address.fill("1 St")
    assert address.evaluate("(field) => field.matches(':dir(ltr)')")
    address.fill("شارع 1")
    assert address.evaluate("(field) => field.matches(':dir(rtl)')")


def test_a_psp_page_that_is_opened_by_a_form_receives_the_form_fields(
    served: Installation, page: Page
) -> None:
    with running(ListeningServer()) as psp:
        psp.acts = [
            responding(
                200, b"<title>Bank</title><link rel=icon href=data:,>", Content_Type="text/html"
            )
        ]
        start, fields = (
            served.provider.start,
            {"parameters": "eyJhIjoxfQ==", "signature": 'a&b="ü"'},
        )
        served.provider.start = lambda request: replace(
            start(request), address=f"{psp.url}/pay?shop=1", fields=fields
        )
        page.goto(link(served, started(served, "en")))
        assert_accessible(page)
        page.get_by_role("button", name=catalog("en").text("continue.button")).click()

        expect(page).to_have_title("Bank")
        (request,) = psp.requests

    assert (request.method, request.path) == ("POST", "/pay?shop=1")
    assert dict(parse_qsl(request.body.decode())) == fields


@pytest.mark.parametrize("language", ["en", "ar"])
def test_a_guest_agrees_on_our_own_page_if_the_psps_page_shows_no_consent(
    asking: Installation, open_page: OpenPage, language: str
) -> None:
    t, text = catalog(language), a_shipped_consent(language=language).text
    page = open_page(viewport=PHONE)
    session = started(asking, language)
    page.goto(link(asking, session))
    assert page.locator("html").get_attribute("lang") == language
    expect(page.get_by_role("main")).to_contain_text(text)
    agree = page.get_by_role("button", name=t.text("continue.agree"))
    expect(agree).to_have_accessible_description(text)
    assert_fits(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_accessible(page)

    agree.press("Enter")

    expect(page.get_by_label(t.text("form.number"))).to_be_visible()
    attempt = asking.session(session.token_id).current_attempt
    assert (attempt.agreed_at, attempt.request.language) == (asking.clock.now(), language)
    page.goto(link(asking, session))
    expect(page.get_by_label(t.text("form.number"))).to_be_visible()
    another_browser = open_page(viewport=PHONE)
    another_browser.goto(link(asking, session))
    expect(another_browser.get_by_role("button", name=t.text("continue.agree"))).to_be_visible()


def assert_reads_from_left_to_right(page: Page, address: object) -> None:
    """Check that the last character of an address is at the right end of the address."""
    first, last = page.evaluate(
        """address => {
            const texts = document.createTreeWalker(document, NodeFilter.SHOW_TEXT);
            while (!texts.nextNode().data.includes(address));
            const start = texts.currentNode.data.indexOf(address);
            return [start, start + address.length - 1].map(at => {
                const range = document.createRange();
                range.setStart(texts.currentNode, at);
                range.setEnd(texts.currentNode, at + 1);
                return range.getBoundingClientRect().left;
            });
        }""",
        address,
    )
    assert first < last


@pytest.mark.parametrize("language", ["en", "ar"])
def test_a_guest_agrees_to_the_terms_of_a_booking(
    served: Installation, open_page: OpenPage, language: str
) -> None:
    served.container.set_center()(CENTER_ID, {"time_zone": "Asia/Riyadh"})
    for each in {"en", language}:
        served.container.set_reservation_text()(CENTER_ID, each)
    starts_at = served.clock.now() + timedelta(days=10)
    booking = {
        "reference": "booking-17",
        "description": "2 × massage",
        "starts_at": starts_at.isoformat(),
        "ends_at": (starts_at + timedelta(hours=1)).isoformat(),
        "no_show": {"amount": "80.00", "currency": "EUR"},
        "policy_uri": "https://a.example/",
    }
    session = started(served, language, agreement=booking)
    text = shipped_reservation_texts()[language]
    page = open_page(viewport=ViewportSize(width=320, height=844))
    page.goto(link(served, session))
    expect(page.get_by_role("main")).to_contain_text("2 × massage")
    assert_reads_from_left_to_right(page, booking["policy_uri"])
    agree = page.get_by_role("button", name=text.button)
    keep = page.get_by_role("checkbox", name=text.keep)
    expect(keep).not_to_be_checked()
    assert_fits(page)
    for scheme in ("light", "dark"):
        page.emulate_media(color_scheme=scheme)
        assert_accessible(page)

    keep.press("Space")
    agree.press("Enter")
    type_card(page, OTHER_GOOD_CARD)
    page.wait_for_url(f"**{SHOP}")

    (account,) = served.accounts()
    assert account.keep_until is None
    with served.storage.read() as unit:
        (agreement,) = unit.agreements.of_account(account.account_id)
    assert agreement.terms == served.session(session.token_id).agreement
    assert agreement.shown.button == text.button

    again = started(
        served, language, agreement={**booking, "reference": "booking-18", "reuse": "offer"}
    )
    page.goto(link(served, again))
    expect(page.get_by_role("main")).to_contain_text(f"•••• {account.last_four}")
    expect(page.get_by_role("checkbox")).to_have_count(0)
    assert_fits(page)
    assert_accessible(page)
    page.get_by_role("link", name=catalog(language).text("card_on_file.another")).click()
    expect(page.get_by_role("checkbox", name=text.keep)).to_be_visible()
    page.go_back()
    page.get_by_role("button", name=text.button).press("Enter")
    page.wait_for_url(f"**{SHOP}")
    assert served.session(again.token_id).account_id == account.account_id
