from __future__ import annotations

import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import urlencode

import pytest
from falcon.testing import Result

from adapters.fake_psp.cards import MESSAGES, UNCLEAN
from adapters.fake_psp.pages import MAX_FORM_BYTES
from adapters.fake_psp.psp import MAX_CARD_ATTEMPTS, FakePsp, PageState
from adapters.psp.contract.clock import SettableClock
from adapters.psp.contract.ids import SeededIds
from domain.billing import AvsResult, BillingInfo
from tests.adapters.fake_psp.conftest import (
    ADDRESS,
    BASE_URL,
    CHALLENGE,
    DECLINED,
    GOOD,
    MAIN,
    MASTERCARD,
    OUT_OF_ORDER,
    UNPUBLISHED,
    WRONG_ADDRESS,
    Browser,
    hosted_page_request,
    lock,
)

RETURN_URI = hosted_page_request().return_uri
CANCEL_URI = hosted_page_request().cancel_uri


@pytest.fixture
def reference(psp: FakePsp) -> str:
    return psp.start_page(hosted_page_request()).reference


@pytest.fixture
def verified(psp: FakePsp) -> str:
    """A page with address verification."""
    return psp.start_page(
        hosted_page_request(session=2, avs=True, billing_info=BillingInfo(**ADDRESS))
    ).reference


def errors(result: Result) -> dict[str, str]:
    """Give the message beside each field that is marked as wrong."""
    shown = re.findall(r'<p class="error" id="(\w+)-error">(.*?)</p>', result.text)
    return {field: unescape(text) for field, text in shown}


def is_way_back_shown(result: Result, uri: str = CANCEL_URI) -> bool:
    return f'<a href="{uri}">Return without adding a card</a>' in unescape(result.text)


# What the page shows


def test_the_form_says_whose_card_is_added_and_hides_who_it_is(
    browser: Browser, reference: str
) -> None:
    shown = browser.open(reference)
    assert shown.status_code == 200
    assert "<h1>Harbor Spa</h1>" in shown.text
    assert "A••• L•••••••, a•••@example.com" in shown.text
    assert "Anna" not in shown.text
    assert "Lovelace" not in shown.text
    assert "Nothing is charged now" in shown.text
    assert hosted_page_request().consent.text in shown.text
    assert is_way_back_shown(shown)
    assert errors(shown) == {}


def test_the_form_names_every_number_that_works(browser: Browser, reference: str) -> None:
    shown = browser.open(reference)
    for number in (GOOD, MASTERCARD, DECLINED, WRONG_ADDRESS, CHALLENGE, OUT_OF_ORDER):
        assert " ".join(re.findall("....", number)) in shown.text


def test_the_address_is_asked_for_only_when_it_is_verified(
    browser: Browser, reference: str, verified: str
) -> None:
    assert 'name="zipcode"' not in browser.open(reference).text
    shown = browser.open(verified)
    for field in ("address", "city", "state", "zipcode"):
        assert f'name="{field}" value="{ADDRESS[field]}"' in shown.text
    assert '<option value="US" selected>United States</option>' in shown.text


def test_markup_in_names_is_shown_and_not_run(psp: FakePsp, browser: Browser) -> None:
    request = hosted_page_request(
        center_name="<script>Spa</script>",
        guest_name="<b> &",
        avs=True,
        billing_info=BillingInfo(address='"><script>'),
    )
    shown = browser.open(psp.start_page(request).reference)
    assert shown.text.count("<script") == 1
    assert "&lt;script&gt;Spa&lt;/script&gt;" in shown.text


def test_a_guest_without_a_name_or_an_address_is_no_obstacle(
    psp: FakePsp, browser: Browser
) -> None:
    reference = psp.start_page(hosted_page_request(guest_name=" ")).reference
    assert browser.open(reference).status_code == 200


def test_no_page_asks_for_anything_from_elsewhere(browser: Browser, reference: str) -> None:
    text = browser.open(reference).text
    addresses = re.findall(r'(?:src|action|<link [^>]*href)="([^"]*)"', text)
    assert len(addresses) >= 6
    assert all(address.startswith("/fake-psp/") for address in addresses)
    assert " style=" not in text
    assert not re.search(r"\son\w+=", text)


@pytest.mark.parametrize(
    ("name", "content_type"),
    [
        ("page.css", "text/css"),
        ("page.js", "text/javascript"),
        ("visa.svg", "image/svg+xml"),
        ("mastercard.svg", "image/svg+xml"),
        ("lock.svg", "image/svg+xml"),
    ],
)
def test_style_script_and_pictures_are_served(
    browser: Browser, name: str, content_type: str
) -> None:
    result = browser.client.simulate_get(f"/fake-psp/static/{name}")
    assert result.status_code == 200
    assert result.headers["content-type"].startswith(content_type)
    assert result.headers["x-content-type-options"] == "nosniff"


@pytest.mark.parametrize("name", ["none.css", "..%2fpages.py", "%2e%2e%2fpsp.py", ".."])
def test_nothing_else_is_served(browser: Browser, name: str) -> None:
    assert browser.client.simulate_get(f"/fake-psp/static/{name}").status_code == 404


# What becomes of a card


@pytest.mark.parametrize("number", [GOOD, MASTERCARD, "4242 4242-4242 4242"])
def test_a_good_card_leads_back(
    psp: FakePsp, browser: Browser, reference: str, number: str
) -> None:
    sent = browser.pay(reference, number)
    assert sent.status_code == 303
    assert sent.headers["location"] == RETURN_URI
    assert psp.page(reference).state is PageState.COMPLETED


def test_a_declined_card_can_be_followed_by_another(browser: Browser, reference: str) -> None:
    sent = browser.pay(reference, DECLINED)
    assert sent.status_code == 422
    assert errors(sent) == {"number": "Your bank declined this card. Try another card."}
    assert browser.pay(reference).status_code == 303


def test_the_last_refusal_is_still_told_when_the_page_is_opened_again(
    browser: Browser, reference: str
) -> None:
    browser.pay(reference, DECLINED)
    assert "declined" in errors(browser.open(reference))["number"]


def test_an_unpublished_number_is_refused(psp: FakePsp, browser: Browser, reference: str) -> None:
    sent = browser.pay(reference, UNPUBLISHED)
    assert sent.status_code == 422
    assert "only the test card numbers" in errors(sent)["number"]
    assert psp.tokens(MAIN) == frozenset()


def test_a_psp_out_of_order_says_to_try_later(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    before = psp.page(reference)
    sent = browser.pay(reference, OUT_OF_ORDER)
    assert sent.status_code == 503
    assert "Please try again later" in sent.text
    assert "retry-after" in sent.headers
    assert is_way_back_shown(sent)
    assert psp.page(reference) == before


def test_a_card_may_be_collected_with_an_address_that_does_not_match(
    psp: FakePsp, browser: Browser, verified: str
) -> None:
    assert browser.pay(verified, WRONG_ADDRESS, **ADDRESS).status_code == 303
    assert psp.page(verified).avs is AvsResult.MISMATCH


def test_a_wrong_postal_code_is_corrected_on_the_page(
    psp: FakePsp, browser: Browser, verified: str
) -> None:
    sent = browser.pay(verified, **{**ADDRESS, "zipcode": "00000"})
    assert sent.status_code == 422
    assert list(errors(sent)) == ["zipcode"]
    assert browser.pay(verified, **ADDRESS).status_code == 303
    assert psp.page(verified).avs is AvsResult.MATCH


def test_a_challenge_is_shown_and_confirmed(psp: FakePsp, browser: Browser, reference: str) -> None:
    sent = browser.pay(reference, CHALLENGE)
    assert sent.status_code == 303
    assert sent.headers["location"] == f"/fake-psp/pages/{reference}/challenge"
    shown = browser.open(reference, challenge=True)
    assert shown.status_code == 200
    assert "Visa card ending in <strong>3220</strong>" in shown.text
    assert is_way_back_shown(shown)
    assert browser.open(reference).headers["location"] == sent.headers["location"]
    answered = browser.answer(reference, "confirm")
    assert (answered.status_code, answered.headers["location"]) == (303, RETURN_URI)
    assert psp.page(reference).state is PageState.COMPLETED


def test_a_failed_challenge_leads_back_to_the_form_with_a_message(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference, CHALLENGE)
    answered = browser.answer(reference, "fail")
    assert answered.status_code == 303
    assert answered.headers["location"] == f"/fake-psp/pages/{reference}"
    assert "could not confirm" in errors(browser.open(reference))["number"]
    assert psp.tokens(MAIN) == frozenset()


def test_an_answer_that_is_none_leaves_the_challenge_open(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference, CHALLENGE)
    answered = browser.answer(reference, "perhaps")
    assert answered.headers["location"] == f"/fake-psp/pages/{reference}/challenge"
    assert psp.page(reference).state is PageState.CHALLENGED


def test_without_a_challenge_its_address_leads_to_the_form(
    browser: Browser, reference: str
) -> None:
    shown = browser.open(reference, challenge=True)
    assert shown.headers["location"] == f"/fake-psp/pages/{reference}"


# What is typed wrong


def test_every_wrong_field_is_named_beside_it_and_in_the_summary(
    browser: Browser, verified: str
) -> None:
    sent = browser.pay(verified, "4242424242424241", expiry="10/26", cvc="12")
    assert sent.status_code == 422
    assert errors(sent) == {
        "number": MESSAGES["number"]["slip"],
        "expiry": MESSAGES["expiry"]["expired"],
        "cvc": MESSAGES["cvc"]["form"],
        "address": MESSAGES["address"]["empty"],
        "zipcode": MESSAGES["zipcode"]["empty"],
        "country_code": MESSAGES["country_code"]["empty"],
    }
    links = re.findall(r'<li><a href="#(\w+)">', sent.text)
    assert links == list(errors(sent))
    assert re.findall(r'id="(\w+)"[^>]* aria-invalid="true"', sent.text) == links
    assert re.findall(r'id="(\w+)"[^>]* autofocus', sent.text) == ["number"]


def test_a_form_that_is_typed_wrong_costs_no_try(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference, "4242424242424241")
    assert psp.page(reference).attempts == 0


def test_what_was_typed_is_kept_but_for_number_and_cvc(browser: Browser, verified: str) -> None:
    sent = browser.pay(
        verified, UNPUBLISHED, cvc="98761", **{**ADDRESS, "city": '"Ålesund" & co', "state": ""}
    )
    assert 'name="expiry" value="08 / 30"' in sent.text
    assert 'name="city" value="&#34;Ålesund&#34; &amp; co"' in sent.text
    assert 'name="state" value=""' in sent.text
    assert UNPUBLISHED not in re.sub(r"\D", "", sent.text)
    assert "98761" not in sent.text
    assert not re.search(r'name="(number|cvc)"[^>]* value=', sent.text)


FIELDS = ["number", "expiry", "cvc", *ADDRESS]


@pytest.mark.parametrize("field", FIELDS)
@pytest.mark.parametrize(
    "odd",
    ["\x00", "\x1b[2J", "a\r\nb", "\ud800", "9" * 3000],
    ids=["NUL", "terminal code", "line break", "surrogate", "too long"],
)
def test_what_cannot_be_shown_or_kept_is_refused_beside_its_field(
    browser: Browser, verified: str, field: str, odd: str
) -> None:
    sent = browser.pay(verified, **{**ADDRESS, field: odd})
    assert sent.status_code == 422
    assert list(errors(sent)) == [field]


@pytest.mark.parametrize("field", ["number", "expiry", "cvc", "zipcode", "country_code"])
def test_the_digits_of_other_scripts_are_refused_beside_their_field(
    browser: Browser, verified: str, field: str
) -> None:
    sent = browser.pay(verified, **{**ADDRESS, field: "١٢٣"})
    assert sent.status_code == 422
    assert list(errors(sent)) == [field]


@pytest.mark.parametrize("field", FIELDS)
def test_markup_that_is_typed_is_not_run(browser: Browser, verified: str, field: str) -> None:
    sent = browser.pay(verified, **{**ADDRESS, "number": DECLINED, field: "<script>"})
    assert sent.status_code == 422
    assert "<script>" not in sent.text


def test_bytes_that_are_no_text_are_refused(browser: Browser, verified: str) -> None:
    token = re.search(r'name="form_token" value="(\w+)"', browser.open(verified).text)
    assert token is not None
    fields = urlencode({"form_token": token[1], "number": GOOD, "expiry": "0830", "cvc": "123"})
    for bad in (b"%FF", b"\xff", b"%ED%A0%80"):
        sent = browser.send_body(verified, fields.encode() + b"&address=" + bad)
        assert errors(sent)["address"] == UNCLEAN


def test_odd_references_are_unknown(browser: Browser) -> None:
    for odd in ("page_none", "%00", "%ff", "%ED%A0%80", "a" * 5000, "'"):
        result = browser.client.simulate_get(f"/fake-psp/pages/{odd}")
        assert result.status_code == 404
        assert "There is no such page" in result.text


# Limits


def test_a_sixth_try_is_refused_and_nothing_is_stored(
    psp: FakePsp, browser: Browser, reference: str, clock: SettableClock
) -> None:
    for _ in range(MAX_CARD_ATTEMPTS):
        assert browser.pay(reference, DECLINED).status_code == 422
    clock.advance(timedelta(minutes=10))
    # The form of the fifth answer still works, so the limit is not a matter of what is shown.
    body = urlencode(
        {
            "form_token": psp.form_token(reference),
            "number": GOOD,
            "expiry": "08 / 30",
            "cvc": "123",
        }
    )
    for refused in (browser.send_body(reference, body), browser.open(reference)):
        assert refused.status_code == 429
        assert refused.headers["retry-after"] == str(20 * 60)
        assert "Too many cards were tried" in refused.text
        assert is_way_back_shown(refused)
    assert psp.tokens(MAIN) == frozenset()
    assert psp.page(reference).attempts == MAX_CARD_ATTEMPTS


def test_a_challenge_on_the_last_try_can_still_be_answered(
    browser: Browser, reference: str
) -> None:
    for _ in range(MAX_CARD_ATTEMPTS - 1):
        browser.pay(reference, DECLINED)
    browser.pay(reference, CHALLENGE)
    assert browser.answer(reference, "confirm").headers["location"] == RETURN_URI


def test_a_form_that_is_too_long_is_refused(psp: FakePsp, browser: Browser, reference: str) -> None:
    token = f"form_token={psp.form_token(reference)}&x="
    within = token + "x" * (MAX_FORM_BYTES - len(token))
    assert browser.send_body(reference, within).status_code == 422
    beyond = browser.send_body(reference, within + "x")
    assert beyond.status_code == 413
    assert "too long" in beyond.text


@pytest.mark.parametrize(
    "content_type", ["application/json", "multipart/form-data; boundary=x", "text/plain", ""]
)
def test_only_a_form_is_read(browser: Browser, reference: str, content_type: str) -> None:
    sent = browser.send_body(reference, "{}", headers={"Content-Type": content_type})
    assert sent.status_code == 415
    assert "cannot be read" in sent.text


@pytest.mark.parametrize("method", ["TRACE", "PUT", "DELETE", "PATCH"])
def test_other_methods_are_not_allowed(browser: Browser, reference: str, method: str) -> None:
    for path in (f"pages/{reference}", f"pages/{reference}/challenge", "static/page.css"):
        assert browser.client.simulate_request(method, f"/fake-psp/{path}").status_code == 405


# Who may send the form


@pytest.mark.parametrize("origin", ["https://evil.example", "null", "", BASE_URL + ".evil"])
def test_a_form_from_elsewhere_is_refused(
    psp: FakePsp, browser: Browser, reference: str, origin: str
) -> None:
    fields = {"number": GOOD, "expiry": "08 / 30", "cvc": "123"}
    sent = browser.send(reference, fields, headers={"Origin": origin})
    assert sent.status_code == 403
    assert psp.page(reference).attempts == 0


def test_a_browser_that_sends_no_origin_is_let_in(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    fields = {"number": GOOD, "expiry": "08 / 30", "cvc": "123"}
    body = urlencode({"form_token": psp.form_token(reference), **fields})
    sent = browser.client.simulate_post(
        f"/fake-psp/pages/{reference}",
        body=body,
        headers={"Content-Type": "application/x-www-form-urlencoded"},
    )
    assert sent.status_code == 303


@pytest.mark.parametrize("token", [None, "", "0" * 64, "é", "\ud800"])
def test_a_form_without_its_token_is_refused(
    psp: FakePsp, browser: Browser, reference: str, token: str | None
) -> None:
    fields = {"number": GOOD, "expiry": "08 / 30", "cvc": "123"}
    if token is not None:
        fields["form_token"] = token
    sent = browser.send_body(reference, urlencode(fields, errors="surrogatepass"))
    assert sent.status_code == 403
    assert psp.page(reference).attempts == 0


def test_the_token_of_another_page_is_refused(
    psp: FakePsp, browser: Browser, reference: str, verified: str
) -> None:
    fields = {"form_token": psp.form_token(verified), "number": GOOD}
    assert browser.send_body(reference, urlencode(fields)).status_code == 403


def test_a_challenge_is_answered_only_from_its_own_page(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference, CHALLENGE)
    sent = browser.send_body(reference, "answer=confirm", challenge=True)
    assert sent.status_code == 403
    assert psp.page(reference).state is PageState.CHALLENGED


# Ends


def test_a_completed_page_leads_back_whatever_is_sent(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference)
    token = {"form_token": psp.form_token(reference)}
    for result in (
        browser.open(reference),
        browser.open(reference, challenge=True),
        browser.send(reference, {**token, "number": MASTERCARD}),
        browser.send(reference, {**token, "answer": "fail"}, challenge=True),
    ):
        assert (result.status_code, result.headers["location"]) == (303, RETURN_URI)
    assert len(psp.tokens(MAIN)) == 1


def close(psp: FakePsp, clock: SettableClock, reference: str) -> None:
    psp.close_page(reference)


def outlive(psp: FakePsp, clock: SettableClock, reference: str) -> None:
    clock.advance(timedelta(minutes=30))


@pytest.mark.parametrize("end", [close, outlive])
def test_a_page_that_is_over_says_so_whatever_is_sent(
    psp: FakePsp,
    browser: Browser,
    reference: str,
    clock: SettableClock,
    end: Callable[[FakePsp, SettableClock, str], None],
) -> None:
    end(psp, clock, reference)
    token = {"form_token": psp.form_token(reference)}
    for result in (
        browser.open(reference),
        browser.open(reference, challenge=True),
        browser.send(reference, {**token, "number": GOOD, "expiry": "0830", "cvc": "123"}),
        browser.send(reference, {**token, "answer": "confirm"}, challenge=True),
    ):
        assert result.status_code == 410
        assert "This page has ended" in result.text
        assert is_way_back_shown(result)
    assert psp.tokens(MAIN) == frozenset()


def test_two_forms_at_once_store_one_card(psp: FakePsp, browser: Browser, reference: str) -> None:
    body = urlencode(
        {
            "form_token": psp.form_token(reference),
            "number": GOOD,
            "expiry": "08 / 30",
            "cvc": "123",
        }
    )
    at_once = threading.Barrier(2)

    def send(_: int) -> Result:
        at_once.wait()
        return browser.send_body(reference, body)

    with ThreadPoolExecutor(2) as pool:
        results = list(pool.map(send, range(2)))
    assert {(each.status_code, each.headers["location"]) for each in results} == {(303, RETURN_URI)}
    assert len(psp.tokens(MAIN)) == 1


def test_a_database_that_cannot_be_written_says_to_try_again(
    psp: FakePsp, browser: Browser, reference: str, database: Path
) -> None:
    other = lock(psp, database)
    sent = browser.pay(reference)
    other.close()
    assert sent.status_code == 503
    assert "Nothing was saved" in sent.text
    assert browser.pay(reference).status_code == 303


# Headers


@pytest.mark.parametrize(
    ("redirect_origin", "source"),
    [
        ("https://shop.example", "https://shop.example"),
        ("http://localhost:5000", "http://localhost:5000"),
        ("myspa://", "myspa:"),
    ],
)
def test_the_headers_shut_everything_else_out(
    psp: FakePsp, browser: Browser, redirect_origin: str, source: str
) -> None:
    request = hosted_page_request(redirect_origin=redirect_origin)
    reference = psp.start_page(request).reference
    pages = [browser.open(reference), browser.pay(reference, DECLINED)]
    assert [page.headers["referrer-policy"] for page in pages] == ["same-origin"] * 2
    pages.append(browser.pay(reference, CHALLENGE))
    pages.append(browser.open(reference, challenge=True))
    assert pages[-1].headers["referrer-policy"] == "same-origin"
    pages.append(browser.answer(reference, "confirm"))
    for page in pages:
        assert page.headers["content-security-policy"] == (
            "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
            f"form-action 'self' {source}; frame-ancestors 'none'; base-uri 'none'"
        )
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "strict-transport-security" not in page.headers


def test_pages_without_a_form_send_no_referrer(browser: Browser, reference: str) -> None:
    for page in (
        browser.open("page_unknown"),
        browser.send_body(reference, ""),
        browser.pay(reference, OUT_OF_ORDER),
        browser.pay(reference),
    ):
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["x-content-type-options"] == "nosniff"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


def test_a_site_on_https_insists_on_it(database: Path, clock: SettableClock) -> None:
    base_url = "https://pay.example/cards"
    psp = FakePsp(database, base_url=base_url, clock=clock, ids=SeededIds())
    reference = psp.start_page(hosted_page_request()).reference
    browser = Browser(psp)
    shown = browser.open(reference)
    assert shown.headers["strict-transport-security"] == "max-age=31536000"
    assert f'action="/cards/fake-psp/pages/{reference}"' in shown.text
    fields = {"number": GOOD, "expiry": "08 / 30", "cvc": "123"}
    origin = {"Origin": "https://pay.example"}
    assert browser.send(reference, fields, headers=origin).status_code == 303


# Card data stays nowhere


def walk_every_path(psp: FakePsp, browser: Browser, cvc: str) -> None:
    """Send cards through every path, errors included, and leave one challenge open."""
    numbers = (
        UNPUBLISHED,
        "4111111111111112",
        DECLINED,
        OUT_OF_ORDER,
        WRONG_ADDRESS,
        CHALLENGE,
        MASTERCARD,
        GOOD,
    )
    for session, number in enumerate(numbers, start=1):
        request = hosted_page_request(session=session, avs=session % 2 == 0)
        reference = psp.start_page(request).reference
        for expiry in ("", "08 / 30"):
            browser.pay(reference, number, cvc=cvc, expiry=expiry, **ADDRESS)
        browser.send_body(reference, urlencode({"number": number, "cvc": cvc}))
        browser.send_body(
            reference,
            urlencode({"form_token": psp.form_token(reference), "number": [number], "x": "\x00"}),
        )
        browser.pay(reference, number, cvc=cvc, **{**ADDRESS, "zipcode": "00000"})
        browser.pay(reference, number + "\ud800", cvc=cvc + "\x00")
    challenged = psp.start_page(hosted_page_request(session=100)).reference
    browser.pay(challenged, CHALLENGE, cvc=cvc)
    other = lock(psp, psp._database._path)
    browser.pay(challenged, GOOD, cvc=cvc)
    other.close()
    assert psp.page(challenged).state is PageState.CHALLENGED


def test_no_card_number_is_in_the_database_or_the_log(
    psp: FakePsp,
    browser: Browser,
    database: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level("DEBUG")
    walk_every_path(psp, browser, cvc="737")
    written = {file.name: file.read_bytes() for file in database.parent.iterdir()}
    assert set(written) == {"fake-psp.db", "fake-psp.db-wal", "fake-psp.db-shm"}
    logged = (caplog.text + "".join(capfd.readouterr())).encode()
    for number in (UNPUBLISHED, DECLINED, OUT_OF_ORDER, CHALLENGE, MASTERCARD, GOOD):
        for spelling in (number, " ".join(re.findall("....", number)), number[:-4]):
            for place in (*written.values(), logged):
                assert spelling.encode() not in place
    assert b'"last_four":"3220"' in b"".join(written.values())


def test_nothing_that_is_kept_depends_on_the_cvc(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    def kept(cvc: str) -> tuple[list[str], str]:
        psp = FakePsp(
            tmp_path / f"{cvc}.db", base_url=BASE_URL, clock=SettableClock(), ids=SeededIds()
        )
        caplog.clear()
        caplog.set_level("DEBUG")
        walk_every_path(psp, Browser(psp), cvc)
        with psp._database.write() as db:
            records = [row[0] for row in db.execute("SELECT page FROM pages").fetchall()]
            records += [row[0] for row in db.execute("SELECT body FROM events").fetchall()]
            records += [row[0] for row in db.execute("SELECT token FROM cards").fetchall()]
        return records, caplog.text + "".join(capfd.readouterr())

    assert kept("123") == kept("737")
