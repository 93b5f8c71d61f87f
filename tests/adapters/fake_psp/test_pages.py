from __future__ import annotations

import re
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from falcon.testing import Result

from adapters.catalogs import catalog
from adapters.fake_psp.cards import TEST_CARDS
from adapters.fake_psp.pages import MAX_FORM_BYTES
from adapters.fake_psp.psp import MAX_CARD_ATTEMPTS, FakePsp, PageState
from adapters.psp_suite.clock import SettableClock
from adapters.psp_suite.ids import SeededIds
from domain.billing import BillingInfo
from tests.adapters.fake_psp.conftest import (
    ADDRESS,
    BASE_URL,
    CARD,
    CHALLENGE,
    DECLINED,
    GOOD,
    MAIN,
    MASTERCARD,
    OUT_OF_ORDER,
    REQUEST,
    UNPUBLISHED,
    Browser,
    card_entry,
    lock,
)
from tests.installation import Installation

ENGLISH = catalog("en")
RETURN_URI = REQUEST.return_uri
CANCEL_URI = REQUEST.cancel_uri


@pytest.fixture
def verified(browser: Browser) -> Browser:
    """A browser at a page with address verification."""
    return browser.at(session=2, avs=True, billing_info=BillingInfo(**ADDRESS))


def errors(result: Result) -> dict[str, str]:
    """Return the message beside each invalid field."""
    shown = re.findall(r'<p class="error" id="(\w+)-error">(.*?)</p>', result.text)
    # Number and security code are to be typed again, whatever is wrong.
    wrong = re.findall(r'<li><a href="#(\w+)">', result.text)
    return {field: unescape(text) for field, text in shown if field in wrong}


def form(browser: Browser, **typed: str) -> str:
    """Return the body of a form with a good card and the token of a page."""
    token = browser.psp.form_token(browser.reference)
    return urlencode({"form_token": token, **CARD, **typed})


def is_way_back_shown(result: Result, uri: str = CANCEL_URI) -> bool:
    return f'<a href="{uri}">Return without adding a card</a>' in unescape(result.text)


# The form.


def test_the_card_form_names_the_center_but_not_the_guest(browser: Browser) -> None:
    shown = browser.open()
    assert shown.status_code == 200
    assert "<h1><bdi>Harbor Spa</bdi></h1>" in shown.text
    assert "A••• L•••, a•••@example.com" in shown.text
    assert "Anna" not in shown.text
    assert "Lovelace" not in shown.text
    assert (
        "Nothing is charged now. <bdi>Harbor Spa</bdi> never sees your card number." in shown.text
    )
    consent = REQUEST.consent.text
    assert consent.replace("Harbor Spa", "<bdi>Harbor Spa</bdi>") in shown.text
    assert is_way_back_shown(shown)
    assert errors(shown) == {}
    assert re.findall(r'<form [^>]*spellcheck="(\w+)"', shown.text) == ["false"]
    assert re.findall(r'enterkeyhint="(\w+)"', shown.text) == ["next", "next", "done"]
    for number in TEST_CARDS:
        assert " ".join(re.findall("....", number)) in shown.text


def test_the_card_form_asks_for_the_billing_address_only_if_avs_is_on(
    browser: Browser, verified: Browser
) -> None:
    assert 'name="zipcode"' not in browser.open().text
    shown = verified.open()
    for field in ("address", "city", "state", "zipcode"):
        assert f'name="{field}" value="{ADDRESS[field]}"' in shown.text
    assert '<option value="US" selected>United States</option>' in shown.text


def test_markup_in_the_name_of_a_center_or_guest_is_escaped(browser: Browser) -> None:
    names = {"center_name": "<script>Spa</script>", "guest_name": "<b> &"}
    address = BillingInfo(address='"><script>')
    shown = browser.at(session=3, avs=True, billing_info=address, **names).open()
    assert shown.text.count("<script") == 1
    assert "&lt;script&gt;Spa&lt;/script&gt;" in shown.text
    assert browser.at(session=4, guest_name=" ").open().status_code == 200


# Shows S9.
def test_the_card_form_loads_nothing_from_other_hosts(browser: Browser) -> None:
    text = browser.open().text
    addresses = re.findall(r'(?:src|action|<link [^>]*href)="([^"]*)"', text)
    assert len(addresses) >= 6
    assert all(address.startswith("/fake-psp/") for address in addresses)
    assert " style=" not in text
    assert not re.search(r"\son\w+=", text)
    for address in addresses:
        assert browser.client.simulate_get(address).status_code in (200, 303)


def test_the_fake_psp_does_not_serve_files_other_than_its_static_files(browser: Browser) -> None:
    for name in ("none.css", "..%2fpages.py", "%2e%2e%2fpsp.py"):
        assert browser.client.simulate_get(f"/fake-psp/static/{name}").status_code == 404


# The result of a card.


@pytest.mark.parametrize(
    ("number", "message"),
    [(DECLINED, "declined this card"), (UNPUBLISHED, "only the test card numbers")],
)
def test_the_guest_can_type_another_card_after_a_card_was_refused(
    browser: Browser, number: str, message: str
) -> None:
    sent = browser.pay(number)
    assert sent.headers["location"] == browser.address
    assert message in errors(browser.open())["number"]
    assert browser.psp.tokens(MAIN) == frozenset()
    assert browser.pay().status_code == 303


def test_the_card_form_asks_the_guest_to_try_later_if_the_psp_is_out_of_order(
    browser: Browser,
) -> None:
    before = browser.page
    sent = browser.pay(OUT_OF_ORDER)
    assert sent.status_code == 503
    assert "Please try again later" in sent.text
    assert ">Try again</a>" in sent.text
    assert "retry-after" in sent.headers
    assert is_way_back_shown(sent)
    assert browser.page == before


def test_a_challenge_has_a_separate_page_on_which_the_guest_confirms_the_card(
    browser: Browser,
) -> None:
    early = browser.open(challenge=True)
    assert early.headers["location"] == browser.address
    sent = browser.pay(CHALLENGE)
    assert sent.status_code == 303
    assert sent.headers["location"] == f"{browser.address}/challenge"
    shown = browser.open(challenge=True)
    assert shown.status_code == 200
    assert 'card ending in <strong dir="ltr">3220</strong>' in shown.text
    assert is_way_back_shown(shown)
    assert browser.open().headers["location"] == sent.headers["location"]
    answered = browser.answer("confirm")
    assert (answered.status_code, answered.headers["location"]) == (303, RETURN_URI)
    assert browser.page.state is PageState.COMPLETED


def test_a_failed_challenge_redirects_to_the_card_form_with_a_message(browser: Browser) -> None:
    browser.pay(CHALLENGE)
    unclear = browser.answer("perhaps")
    assert unclear.headers["location"] == f"{browser.address}/challenge"
    answered = browser.answer("fail")
    assert answered.status_code == 303
    assert answered.headers["location"] == browser.address
    assert "could not confirm" in errors(browser.open())["number"]
    assert browser.psp.tokens(MAIN) == frozenset()


@pytest.mark.parametrize("answer", ["confirm", "fail"])
def test_confirming_a_challenge_stores_no_card_if_another_tab_replaced_the_card(
    browser: Browser, answer: str
) -> None:
    browser.pay(CHALLENGE, expiry="09 / 31")
    first = browser.hidden(challenge=True) | {"answer": answer}
    browser.psp.try_card(browser.reference, card_entry(CHALLENGE))
    sent = browser.send_body(urlencode(first), challenge=True)
    assert sent.headers["location"] == f"{browser.address}/challenge"
    assert browser.page.state is PageState.CHALLENGED
    browser.answer("confirm")

    told = browser.send_body(urlencode(first), challenge=True)

    assert told.status_code == 409
    assert ENGLISH.text("form_problem.other_kept.title") in told.text
    card = browser.page.card
    assert card is not None
    assert card.expiry_year == 2030


# Wrong input.


def test_the_error_summary_of_the_card_form_links_to_every_invalid_field(verified: Browser) -> None:
    sent = verified.pay("4242424242424241", expiry="10/26", cvc="12")
    assert sent.status_code == 422
    assert errors(sent) == {
        "number": ENGLISH.text("form.fault.number.slip"),
        "expiry": ENGLISH.text("form.fault.expiry.expired"),
        "cvc": ENGLISH.text("form.fault.cvc.form"),
        "address": ENGLISH.text("form.fault.address.empty"),
        "zipcode": ENGLISH.text("form.fault.zipcode.empty"),
        "country_code": ENGLISH.text("form.fault.country_code.empty"),
    }
    links = re.findall(r'<li><a href="#(\w+)">', sent.text)
    assert links == list(errors(sent))
    assert re.findall(r'id="(\w+)"[^>]* aria-invalid="true"', sent.text) == links
    assert re.findall(r'id="(\w+)"[^>]* autofocus', sent.text) == ["summary"]
    # An incomplete form does not count as an attempt.
    assert verified.page.attempts == 0


@pytest.mark.parametrize("cvc", ["98761", "987"], ids=["refused at once", "refused as a card"])
def test_the_card_form_shows_typed_values_again_except_the_card_number_and_cvc(
    verified: Browser, cvc: str
) -> None:
    address = {**ADDRESS, "city": '"Ålesund" & co', "state": ""}
    sent = verified.pay(UNPUBLISHED, cvc=cvc, **address)
    if sent.status_code == 303:
        sent = verified.open()
    assert 'name="expiry" value="08 / 30"' in sent.text
    assert 'name="city" value="&#34;Ålesund&#34; &amp; co"' in sent.text
    assert 'name="state" value=""' in sent.text
    assert UNPUBLISHED not in re.sub(r"\D", "", sent.text)
    assert cvc not in sent.text
    assert not re.search(r'name="(number|cvc)"[^>]* value=', sent.text)


FIELDS = ["number", "expiry", "cvc", *ADDRESS]


def test_markup_that_is_typed_into_the_card_form_is_escaped(verified: Browser) -> None:
    sent = verified.pay(**dict.fromkeys(FIELDS, "<script>"))
    assert sent.status_code == 422
    assert "<script>" not in sent.text
    assert "&lt;script&gt;" in sent.text


def test_the_card_form_refuses_values_that_are_not_utf_8(verified: Browser) -> None:
    card = form(verified)
    for bad in ("%FF", "\udcff", "%ED%A0%80"):
        body = f"{card}&address={bad}".encode(errors="surrogateescape")
        assert errors(verified.send_body(body))["address"] == ENGLISH.text("form.fault.unclean")


def test_an_unknown_or_malformed_page_reference_responds_404(browser: Browser) -> None:
    for odd in ("page_none", "%00", "%ff", "%ED%A0%80", "a" * 5000, "'"):
        result = browser.client.simulate_get(f"/fake-psp/pages/{odd}")
        assert result.status_code == 404
        assert "There is no such page" in result.text


# Limits.


def test_the_page_ends_after_the_fifth_refused_card(browser: Browser) -> None:
    for _ in range(MAX_CARD_ATTEMPTS - 1):
        assert browser.pay(DECLINED).status_code == 303
    for refused in (browser.pay(DECLINED), browser.send_body(form(browser)), browser.open()):
        assert refused.status_code == 410
        assert "Too many cards were refused" in refused.text
        assert is_way_back_shown(refused)
    assert browser.psp.tokens(MAIN) == frozenset()
    assert browser.page.attempts == MAX_CARD_ATTEMPTS


def test_an_overlong_form_body_is_refused(browser: Browser) -> None:
    token = f"form_token={browser.psp.form_token(browser.reference)}&x="
    within = token + "x" * (MAX_FORM_BYTES - len(token))
    assert browser.send_body(within).status_code == 422
    beyond = browser.send_body(within + "x")
    assert beyond.status_code == 413
    assert "too long" in beyond.text


def test_a_request_body_that_is_not_a_form_is_refused(browser: Browser) -> None:
    for content_type in ("application/json", ""):
        sent = browser.send_body("{}", headers={"Content-Type": content_type})
        assert (sent.status_code, "cannot be read" in sent.text) == (415, True)


# Who may send the form.


# Shows S10.
def test_a_form_sent_from_another_site_is_refused(browser: Browser) -> None:
    for headers in (
        {"Origin": ""},
        {"Origin": BASE_URL + ".evil"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": BASE_URL, "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ):
        assert send_form(browser, headers).status_code == 403
        assert browser.page.attempts == 0


def test_a_form_with_its_form_token_is_accepted_without_an_origin_header(browser: Browser) -> None:
    for headers in ({}, {"Origin": "null"}, {"Origin": "null", "Sec-Fetch-Site": "same-origin"}):
        assert send_form(browser, headers).status_code == 303


def send_form(browser: Browser, headers: dict[str, str]) -> Result:
    """Send a card with only these headers."""
    form_type = {"Content-Type": "application/x-www-form-urlencoded"}
    return browser.client.simulate_post(
        browser.address, body=form(browser), headers=form_type | headers
    )


# Shows S10.
def test_a_form_without_the_form_token_of_its_page_is_refused(
    browser: Browser, verified: Browser
) -> None:
    wrong = [{}, {"form_token": "0" * 64}, {"form_token": "\ud800"}]
    bodies = [urlencode({**CARD, **each}, errors="surrogatepass") for each in wrong]
    for body in (*bodies, form(verified)):
        assert browser.send_body(body).status_code == 403
    assert browser.page.attempts == 0
    browser.pay(CHALLENGE)
    sent = browser.send_body("answer=confirm", challenge=True)
    assert sent.status_code == 403
    assert browser.page.state is PageState.CHALLENGED


# Ends.


def send_everything(browser: Browser) -> list[Result]:
    """Open both addresses of a page, and send both forms."""
    return [
        browser.open(),
        browser.open(challenge=True),
        browser.send_body(form(browser)),
        browser.send_body(f"{form(browser)}&attempt=1&answer=confirm", challenge=True),
    ]


def test_every_request_to_a_completed_page_redirects_to_the_return_uri(browser: Browser) -> None:
    browser.pay()
    for result in send_everything(browser):
        assert (result.status_code, result.headers["location"]) == (303, RETURN_URI)
    assert len(browser.psp.tokens(MAIN)) == 1


# Shows F35.
@pytest.mark.parametrize(
    "typed",
    [{"number": MASTERCARD}, {"expiry": "09 / 30"}],
    ids=["another card", "another date"],
)
def test_submitting_another_card_to_a_completed_page_is_refused(
    browser: Browser, typed: dict[str, str]
) -> None:
    other = form(browser, **typed)
    browser.pay()

    sent = browser.send_body(other)

    assert sent.status_code == 409
    assert "Another card was added here before" in sent.text
    assert "<bdi>Visa\xa0••••\xa04242</bdi>" in sent.text
    assert f'href="{RETURN_URI}"' in sent.text
    assert len(browser.psp.tokens(MAIN)) == 1


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "outlived"])
def test_every_request_to_an_ended_page_gets_the_status_410_gone(
    browser: Browser, clock: SettableClock, is_closed: bool
) -> None:
    if is_closed:
        browser.psp.close_page(browser.reference)
    else:
        clock.advance(timedelta(minutes=30))
    for result in send_everything(browser):
        assert result.status_code == 410
        assert "This page has ended" in result.text
        assert is_way_back_shown(result)
    assert browser.psp.tokens(MAIN) == frozenset()


def test_the_card_form_asks_the_guest_to_try_again_if_the_database_is_locked(
    browser: Browser, database: Path
) -> None:
    before = browser.page
    other = lock(browser.psp, database)
    sent = browser.pay()
    other.close()
    assert sent.status_code == 503
    assert "Nothing was saved" in sent.text
    assert browser.page == before
    assert browser.pay().status_code == 303


# Headers.


# Shows S9.
def test_the_security_headers_protect_the_card_form_from_other_sites(browser: Browser) -> None:
    pages = [browser.open(), browser.pay(cvc="")]
    leaving = [browser.pay(DECLINED), browser.pay(CHALLENGE)]
    pages.append(browser.open(challenge=True))
    leaving.append(browser.answer("confirm"))
    # Without a referrer, browsers send a form with the origin "null".
    assert {page.headers["referrer-policy"] for page in pages} == {"same-origin"}
    assert {page.headers["referrer-policy"] for page in leaving} == {"no-referrer"}
    for page in (
        browser.client.simulate_get("/fake-psp/pages/page_unknown"),
        browser.send_body(""),
        browser.at(session=2).pay(OUT_OF_ORDER),
    ):
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
    # Browsers apply `form-action` to the redirects after a form, up to where the shop sends its guests.
    for responses, form_action in [(pages, ""), (leaving, "form-action 'none'; ")]:
        for each in responses:
            assert each.headers["content-security-policy"] == (
                "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
                f"{form_action}frame-ancestors 'none'; base-uri 'none'"
            )
            assert each.headers["cache-control"] == "no-store"


# Shows S9.
@pytest.mark.installed(base_url="https://pay.example", CARDONFILE_ALLOW_FAKE_PSP="1")
def test_pages_of_the_fake_psp_on_https_enable_hsts(installation: Installation) -> None:
    reference = installation.page_reference(installation.opened_session())
    browser = Browser(installation.psp, reference, installation.client())
    shown = browser.open()
    for result in (shown, browser.client.simulate_get("/fake-psp/static/page.js")):
        assert result.headers["strict-transport-security"] == "max-age=31536000"
        assert result.headers["x-content-type-options"] == "nosniff"
    own, other = (
        browser.send_body(form(browser), headers={"Origin": origin})
        for origin in ("https://pay.example", BASE_URL)
    )
    assert (own.status_code, other.status_code) == (303, 403)


# Card data.


def walk_every_path(browser: Browser, cvc: str) -> None:
    """Send cards through every path with every error. One challenge is left open."""
    numbers = (UNPUBLISHED, "4111111111111112", OUT_OF_ORDER, CHALLENGE, GOOD)
    for session, number in enumerate(numbers, start=2):
        page = browser.at(session=session, avs=session % 2 == 0)
        for expiry in ("", "08 / 30"):
            page.pay(number, cvc=cvc, expiry=expiry, **ADDRESS)
        page.send_body(urlencode({"number": number, "cvc": cvc}))
        page.send_body(form(page, number=number, x="\x00"))
        page.pay(number, cvc=cvc, **{**ADDRESS, "zipcode": "00000"})
        page.pay(number + "\ud800", cvc=cvc + "\x00")
    browser.pay(CHALLENGE, cvc=cvc)
    other = lock(browser.psp, browser.psp._database._path)
    browser.pay(GOOD, cvc=cvc)
    other.close()
    assert browser.page.state is PageState.CHALLENGED


# Shows S11.
def test_full_card_numbers_are_never_written_to_the_database_or_the_log(
    browser: Browser,
    database: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    walk_every_path(browser, cvc="737")
    written = {file.name: file.read_bytes() for file in database.parent.iterdir()}
    assert set(written) == {"fake-psp.db", "fake-psp.db-wal", "fake-psp.db-shm"}
    logged = (caplog.text + "".join(capfd.readouterr())).encode()
    for number in (UNPUBLISHED, OUT_OF_ORDER, CHALLENGE, GOOD):
        for spelling in (number, " ".join(re.findall("....", number)), number[:-4]):
            for place in (*written.values(), logged):
                assert spelling.encode() not in place
    assert b'"last_four":"3220"' in b"".join(written.values())


# Shows S11.
def test_nothing_that_is_stored_or_logged_depends_on_the_cvc(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def kept(cvc: str) -> tuple[list[str], str]:
        psp = FakePsp(
            tmp_path / f"{cvc}.db", base_url=BASE_URL, clock=SettableClock(), ids=SeededIds()
        )
        caplog.clear()
        caplog.set_level("DEBUG")
        walk_every_path(Browser(psp, psp.start_page(REQUEST).reference), cvc)
        with psp._database.write() as db:
            records = [row[0] for row in db.execute("SELECT page FROM pages").fetchall()]
            records += [row[0] for row in db.execute("SELECT body FROM events").fetchall()]
            records += [row[0] for row in db.execute("SELECT token FROM cards").fetchall()]
        return records, caplog.text + "".join(capfd.readouterr())

    assert kept("123") == kept("737")
