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
    CHALLENGE,
    DECLINED,
    GOOD,
    MAIN,
    MASTERCARD,
    OUT_OF_ORDER,
    UNPUBLISHED,
    Browser,
    card_entry,
    hosted_page_request,
    lock,
)
from tests.installation import Installation

ENGLISH = catalog("en")
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
    """Return the message beside each wrong field."""
    shown = re.findall(r'<p class="error" id="(\w+)-error">(.*?)</p>', result.text)
    # Number and security code are to be typed again, whatever is wrong.
    wrong = re.findall(r'<li><a href="#(\w+)">', result.text)
    return {field: unescape(text) for field, text in shown if field in wrong}


def form(psp: FakePsp, reference: str) -> str:
    """Return the body of a form with a good card and the token of a page."""
    token = psp.form_token(reference)
    return urlencode({"form_token": token, "number": GOOD, "expiry": "08 / 30", "cvc": "123"})


def is_way_back_shown(result: Result, uri: str = CANCEL_URI) -> bool:
    return f'<a href="{uri}">Return without adding a card</a>' in unescape(result.text)


# The form.


def test_the_form_names_the_center_but_not_the_guest(browser: Browser, reference: str) -> None:
    shown = browser.open(reference)
    assert shown.status_code == 200
    assert "<h1><bdi>Harbor Spa</bdi></h1>" in shown.text
    assert "A••• L•••, a•••@example.com" in shown.text
    assert "Anna" not in shown.text
    assert "Lovelace" not in shown.text
    assert (
        "Nothing is charged now. <bdi>Harbor Spa</bdi> never sees your card number." in shown.text
    )
    consent = hosted_page_request().consent.text
    assert consent.replace("Harbor Spa", "<bdi>Harbor Spa</bdi>") in shown.text
    assert is_way_back_shown(shown)
    assert errors(shown) == {}
    for number in TEST_CARDS:
        assert " ".join(re.findall("....", number)) in shown.text


def test_the_name_in_what_a_guest_agrees_to_is_no_markup(psp: FakePsp, browser: Browser) -> None:
    page = psp.start_page(hosted_page_request(session=3, center_name="<b>Spa!", language="ar"))
    assert "تأذنون لـ <bdi>&lt;b&gt;Spa!</bdi> بحفظها" in browser.open(page.reference).text


def test_what_is_typed_is_sent_to_no_spell_checker(browser: Browser, reference: str) -> None:
    text = browser.open(reference).text
    assert re.findall(r'<form [^>]*spellcheck="(\w+)"', text) == ["false"]
    assert re.findall(r'enterkeyhint="(\w+)"', text) == ["next", "next", "done"]


def test_the_address_is_asked_for_only_when_it_is_verified(
    browser: Browser, reference: str, verified: str
) -> None:
    assert 'name="zipcode"' not in browser.open(reference).text
    shown = browser.open(verified)
    for field in ("address", "city", "state", "zipcode"):
        assert f'name="{field}" value="{ADDRESS[field]}"' in shown.text
    assert '<option value="US" selected>United States</option>' in shown.text


def test_markup_in_names_is_escaped(psp: FakePsp, browser: Browser) -> None:
    request = hosted_page_request(
        center_name="<script>Spa</script>",
        guest_name="<b> &",
        avs=True,
        billing_info=BillingInfo(address='"><script>'),
    )
    shown = browser.open(psp.start_page(request).reference)
    assert shown.text.count("<script") == 1
    assert "&lt;script&gt;Spa&lt;/script&gt;" in shown.text


def test_a_guest_may_have_a_blank_name(psp: FakePsp, browser: Browser) -> None:
    reference = psp.start_page(hosted_page_request(guest_name=" ")).reference
    assert browser.open(reference).status_code == 200


# Shows S9.
def test_no_page_asks_for_anything_from_elsewhere(browser: Browser, reference: str) -> None:
    text = browser.open(reference).text
    addresses = re.findall(r'(?:src|action|<link [^>]*href)="([^"]*)"', text)
    assert len(addresses) >= 6
    assert all(address.startswith("/fake-psp/") for address in addresses)
    assert " style=" not in text
    assert not re.search(r"\son\w+=", text)
    for address in addresses:
        assert browser.client.simulate_get(address).status_code in (200, 303)


@pytest.mark.parametrize("name", ["none.css", "..%2fpages.py", "%2e%2e%2fpsp.py"])
def test_only_static_files_are_served(browser: Browser, name: str) -> None:
    assert browser.client.simulate_get(f"/fake-psp/static/{name}").status_code == 404


# The result of a card.


def test_a_good_card_leads_back(psp: FakePsp, browser: Browser, reference: str) -> None:
    sent = browser.pay(reference)
    assert sent.status_code == 303
    assert sent.headers["location"] == RETURN_URI
    assert psp.page(reference).state is PageState.COMPLETED


@pytest.mark.parametrize(
    ("number", "message"),
    [(DECLINED, "declined this card"), (UNPUBLISHED, "only the test card numbers")],
)
def test_a_refused_card_can_be_followed_by_another(
    psp: FakePsp, browser: Browser, reference: str, number: str, message: str
) -> None:
    sent = browser.pay(reference, number)
    assert sent.headers["location"] == f"/fake-psp/pages/{reference}"
    assert message in errors(browser.open(reference))["number"]
    assert psp.tokens(MAIN) == frozenset()
    assert browser.pay(reference).status_code == 303


def test_a_reload_after_a_refusal_tries_no_card(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    # A browser that was sent on by 303 loads the form again, not the request with the card.
    assert browser.pay(reference, DECLINED).status_code == 303
    assert browser.open(reference).status_code == browser.open(reference).status_code == 200
    assert psp.page(reference).attempts == 1


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


def test_a_wrong_postal_code_is_corrected_on_the_page(browser: Browser, verified: str) -> None:
    assert browser.pay(verified, **{**ADDRESS, "zipcode": "00000"}).status_code == 303
    assert list(errors(browser.open(verified))) == ["zipcode"]
    assert browser.pay(verified, **ADDRESS).status_code == 303


def test_a_challenge_is_confirmed_on_a_page_of_its_own(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    early = browser.open(reference, challenge=True)
    assert early.headers["location"] == f"/fake-psp/pages/{reference}"
    sent = browser.pay(reference, CHALLENGE)
    assert sent.status_code == 303
    assert sent.headers["location"] == f"/fake-psp/pages/{reference}/challenge"
    shown = browser.open(reference, challenge=True)
    assert shown.status_code == 200
    assert 'card ending in <strong dir="ltr">3220</strong>' in shown.text
    assert is_way_back_shown(shown)
    assert browser.open(reference).headers["location"] == sent.headers["location"]
    answered = browser.answer(reference, "confirm")
    assert (answered.status_code, answered.headers["location"]) == (303, RETURN_URI)
    assert psp.page(reference).state is PageState.COMPLETED


def test_a_failed_challenge_leads_back_to_the_form_with_a_message(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference, CHALLENGE)
    unclear = browser.answer(reference, "perhaps")
    assert unclear.headers["location"] == f"/fake-psp/pages/{reference}/challenge"
    answered = browser.answer(reference, "fail")
    assert answered.status_code == 303
    assert answered.headers["location"] == f"/fake-psp/pages/{reference}"
    assert "could not confirm" in errors(browser.open(reference))["number"]
    assert psp.tokens(MAIN) == frozenset()


@pytest.mark.parametrize("answer", ["confirm", "fail"])
def test_a_challenge_of_a_card_that_another_tab_has_replaced_keeps_none(
    psp: FakePsp, browser: Browser, reference: str, answer: str
) -> None:
    browser.pay(reference, CHALLENGE, expiry="09 / 31")
    first = browser.hidden(reference, challenge=True) | {"answer": answer}
    psp.try_card(reference, card_entry(CHALLENGE))
    sent = browser.send_body(reference, urlencode(first), challenge=True)
    assert sent.headers["location"] == f"/fake-psp/pages/{reference}/challenge"
    assert psp.page(reference).state is PageState.CHALLENGED
    browser.answer(reference, "confirm")

    told = browser.send_body(reference, urlencode(first), challenge=True)

    assert told.status_code == 409
    assert ENGLISH.text("form_problem.other_kept.title") in told.text
    card = psp.page(reference).card
    assert card is not None
    assert card.expiry_year == 2030


# Wrong input.


def test_a_summary_links_to_every_wrong_field(
    psp: FakePsp, browser: Browser, verified: str
) -> None:
    sent = browser.pay(verified, "4242424242424241", expiry="10/26", cvc="12")
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
    # It does not count as a try.
    assert psp.page(verified).attempts == 0


@pytest.mark.parametrize("cvc", ["98761", "987"], ids=["refused at once", "refused as a card"])
def test_all_that_was_typed_but_number_or_cvc_is_kept(
    browser: Browser, verified: str, cvc: str
) -> None:
    address = {**ADDRESS, "city": '"Ålesund" & co', "state": ""}
    sent = browser.pay(verified, UNPUBLISHED, cvc=cvc, **address)
    if sent.status_code == 303:
        sent = browser.open(verified)
    assert 'name="expiry" value="08 / 30"' in sent.text
    assert 'name="city" value="&#34;Ålesund&#34; &amp; co"' in sent.text
    assert 'name="state" value=""' in sent.text
    assert UNPUBLISHED not in re.sub(r"\D", "", sent.text)
    assert cvc not in sent.text
    assert not re.search(r'name="(number|cvc)"[^>]* value=', sent.text)


FIELDS = ["number", "expiry", "cvc", *ADDRESS]


@pytest.mark.parametrize(
    "odd",
    ["\x00", "\x1b[2J", "a\r\nb", "\ud800", "9" * 500],
    ids=["NUL", "terminal code", "line break", "surrogate", "too long"],
)
def test_what_cannot_be_shown_or_kept_is_refused_beside_its_field(
    browser: Browser, verified: str, odd: str
) -> None:
    sent = browser.pay(verified, **dict.fromkeys(FIELDS, odd))
    assert sent.status_code == 422
    assert list(errors(sent)) == FIELDS


def test_markup_that_is_typed_is_escaped(browser: Browser, verified: str) -> None:
    sent = browser.pay(verified, **dict.fromkeys(FIELDS, "<script>"))
    assert sent.status_code == 422
    assert "<script>" not in sent.text
    assert "&lt;script&gt;" in sent.text


def test_bytes_that_are_no_text_are_refused(browser: Browser, psp: FakePsp, verified: str) -> None:
    card = form(psp, verified)
    for bad in ("%FF", "\udcff", "%ED%A0%80"):
        body = f"{card}&address={bad}".encode(errors="surrogateescape")
        assert errors(browser.send_body(verified, body))["address"] == ENGLISH.text(
            "form.fault.unclean"
        )


def test_odd_references_are_unknown(browser: Browser) -> None:
    for odd in ("page_none", "%00", "%ff", "%ED%A0%80", "a" * 5000, "'"):
        result = browser.client.simulate_get(f"/fake-psp/pages/{odd}")
        assert result.status_code == 404
        assert "There is no such page" in result.text


# Limits.


def test_the_fifth_refusal_ends_the_page(psp: FakePsp, browser: Browser, reference: str) -> None:
    for _ in range(MAX_CARD_ATTEMPTS - 1):
        assert browser.pay(reference, DECLINED).status_code == 303
    for refused in (
        browser.pay(reference, DECLINED),
        browser.send_body(reference, form(psp, reference)),
        browser.open(reference),
    ):
        assert refused.status_code == 410
        assert "Too many cards were refused" in refused.text
        assert is_way_back_shown(refused)
    assert psp.tokens(MAIN) == frozenset()
    assert psp.page(reference).attempts == MAX_CARD_ATTEMPTS


def test_a_form_that_is_too_long_is_refused(psp: FakePsp, browser: Browser, reference: str) -> None:
    token = f"form_token={psp.form_token(reference)}&x="
    within = token + "x" * (MAX_FORM_BYTES - len(token))
    assert browser.send_body(reference, within).status_code == 422
    beyond = browser.send_body(reference, within + "x")
    assert beyond.status_code == 413
    assert "too long" in beyond.text


@pytest.mark.parametrize("content_type", ["application/json", ""])
def test_only_a_form_is_read(browser: Browser, reference: str, content_type: str) -> None:
    sent = browser.send_body(reference, "{}", headers={"Content-Type": content_type})
    assert sent.status_code == 415
    assert "cannot be read" in sent.text


# Who may send the form.


# Shows S10.
@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": ""},
        {"Origin": BASE_URL + ".evil"},
        {"Origin": "null", "Sec-Fetch-Site": "cross-site"},
        {"Origin": BASE_URL, "Sec-Fetch-Site": "same-site"},
        {"Sec-Fetch-Site": "none"},
    ],
)
def test_a_form_from_elsewhere_is_refused(
    psp: FakePsp, browser: Browser, reference: str, headers: dict[str, str]
) -> None:
    sent = send_form(browser, psp, reference, headers)
    assert sent.status_code == 403
    assert psp.page(reference).attempts == 0


@pytest.mark.parametrize(
    "headers", [{}, {"Origin": "null"}, {"Origin": "null", "Sec-Fetch-Site": "same-origin"}]
)
def test_a_form_with_its_token_is_accepted_from_a_browser_that_names_no_origin(
    psp: FakePsp, browser: Browser, reference: str, headers: dict[str, str]
) -> None:
    assert send_form(browser, psp, reference, headers).status_code == 303


def send_form(browser: Browser, psp: FakePsp, reference: str, headers: dict[str, str]) -> Result:
    """Send a card with these headers alone."""
    return browser.client.simulate_post(
        f"/fake-psp/pages/{reference}",
        body=form(psp, reference),
        headers={"Content-Type": "application/x-www-form-urlencoded", **headers},
    )


# Shows S10.
@pytest.mark.parametrize("token", ["", "0" * 64, "\ud800"])
def test_a_form_without_its_token_is_refused(
    psp: FakePsp, browser: Browser, reference: str, token: str
) -> None:
    fields = {"number": GOOD, "expiry": "08 / 30", "cvc": "123"}
    if token:
        fields["form_token"] = token
    sent = browser.send_body(reference, urlencode(fields, errors="surrogatepass"))
    assert sent.status_code == 403
    assert psp.page(reference).attempts == 0


# Shows S10.
def test_the_token_of_another_page_is_refused(
    psp: FakePsp, browser: Browser, reference: str, verified: str
) -> None:
    assert browser.send_body(reference, form(psp, verified)).status_code == 403


def test_a_challenge_is_answered_only_from_its_own_page(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference, CHALLENGE)
    sent = browser.send_body(reference, "answer=confirm", challenge=True)
    assert sent.status_code == 403
    assert psp.page(reference).state is PageState.CHALLENGED


# Ends.


def send_everything(psp: FakePsp, browser: Browser, reference: str) -> list[Result]:
    """Open both addresses of a page, and send both forms."""
    return [
        browser.open(reference),
        browser.open(reference, challenge=True),
        browser.send_body(reference, form(psp, reference)),
        browser.send_body(
            reference, f"{form(psp, reference)}&attempt=1&answer=confirm", challenge=True
        ),
    ]


def test_a_completed_page_leads_back_whatever_is_sent(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    browser.pay(reference)
    for result in send_everything(psp, browser, reference):
        assert (result.status_code, result.headers["location"]) == (303, RETURN_URI)
    assert len(psp.tokens(MAIN)) == 1


# Shows F35.
@pytest.mark.parametrize(
    "typed",
    [{"number": MASTERCARD}, {"expiry": "09 / 30"}, {"number": ""}],
    ids=["another card", "another date", "nothing"],
)
def test_a_completed_page_says_that_it_keeps_no_other_card(
    psp: FakePsp, browser: Browser, reference: str, typed: dict[str, str]
) -> None:
    token = psp.form_token(reference)
    browser.pay(reference)
    fields = {"form_token": token, "number": GOOD, "expiry": "08 / 30", "cvc": "123", **typed}

    sent = browser.send_body(reference, urlencode(fields))

    assert sent.status_code == 409
    assert "Another card was added here before" in sent.text
    assert "<bdi>Visa\xa0••••\xa04242</bdi>" in sent.text
    assert f'href="{RETURN_URI}"' in sent.text
    assert len(psp.tokens(MAIN)) == 1


@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "outlived"])
def test_a_page_that_is_over_says_so_whatever_is_sent(
    psp: FakePsp, browser: Browser, reference: str, clock: SettableClock, is_closed: bool
) -> None:
    if is_closed:
        psp.close_page(reference)
    else:
        clock.advance(timedelta(minutes=30))
    for result in send_everything(psp, browser, reference):
        assert result.status_code == 410
        assert "This page has ended" in result.text
        assert is_way_back_shown(result)
    assert psp.tokens(MAIN) == frozenset()


def test_a_database_that_cannot_be_written_says_to_try_again(
    psp: FakePsp, browser: Browser, reference: str, database: Path
) -> None:
    before = psp.page(reference)
    other = lock(psp, database)
    sent = browser.pay(reference)
    other.close()
    assert sent.status_code == 503
    assert "Nothing was saved" in sent.text
    assert psp.page(reference) == before
    assert browser.pay(reference).status_code == 303


# Headers.


# Shows S9.
def test_the_headers_shut_everything_else_out(
    psp: FakePsp, browser: Browser, reference: str
) -> None:
    pages = [browser.open(reference), browser.pay(reference, cvc="")]
    leaving = [browser.pay(reference, DECLINED), browser.pay(reference, CHALLENGE)]
    pages.append(browser.open(reference, challenge=True))
    leaving.append(browser.answer(reference, "confirm"))
    # Without a referrer, browsers send a form with the origin "null".
    assert {page.headers["referrer-policy"] for page in pages} == {"same-origin"}
    assert {page.headers["referrer-policy"] for page in leaving} == {"no-referrer"}
    # Browsers apply `form-action` to the redirects after a form, up to where the shop sends its guests.
    for responses, form_action in [(pages, ""), (leaving, "form-action 'none'; ")]:
        for each in responses:
            assert each.headers["content-security-policy"] == (
                "default-src 'none'; style-src 'self'; script-src 'self'; img-src 'self'; "
                f"{form_action}frame-ancestors 'none'; base-uri 'none'"
            )
            assert each.headers["cache-control"] == "no-store"


# Shows S9.
def test_pages_without_a_form_send_no_referrer(browser: Browser, reference: str) -> None:
    for page in (
        browser.open("page_unknown"),
        browser.send_body(reference, ""),
        browser.pay(reference, OUT_OF_ORDER),
    ):
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["cache-control"] == "no-store"
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]


# Shows S9.
def test_a_site_on_https_insists_on_it(tmp_path: Path) -> None:
    installed = Installation(
        tmp_path, base_url="https://pay.example", CARDONFILE_ALLOW_FAKE_PSP="1"
    )
    reference = installed.page_reference(installed.opened_session())
    browser = Browser(installed.psp, client=installed.client())
    shown = browser.open(reference)
    for result in (shown, browser.client.simulate_get("/fake-psp/static/page.js")):
        assert result.headers["strict-transport-security"] == "max-age=31536000"
        assert result.headers["x-content-type-options"] == "nosniff"
    own, other = (
        browser.send_body(reference, form(installed.psp, reference), headers={"Origin": origin})
        for origin in ("https://pay.example", BASE_URL)
    )
    installed.close()
    assert (own.status_code, other.status_code) == (303, 403)


# Card data.


def walk_every_path(psp: FakePsp, browser: Browser, cvc: str) -> None:
    """Send cards through every path, with every error, and leave one challenge open."""
    numbers = (UNPUBLISHED, "4111111111111112", OUT_OF_ORDER, CHALLENGE, GOOD)
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


# Shows S11.
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
    for number in (UNPUBLISHED, OUT_OF_ORDER, CHALLENGE, GOOD):
        for spelling in (number, " ".join(re.findall("....", number)), number[:-4]):
            for place in (*written.values(), logged):
                assert spelling.encode() not in place
    assert b'"last_four":"3220"' in b"".join(written.values())


# Shows S11.
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
