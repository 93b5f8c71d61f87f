"""The demo as a visitor meets it: started for real, its pages and forms used over HTTP."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path
from typing import Final
from urllib.error import HTTPError
from urllib.parse import urlencode, urljoin
from urllib.request import HTTPCookieProcessor, ProxyHandler, Request, build_opener

import falcon
import pytest
from click.testing import CliRunner
from falcon.testing import TestClient
from typing_extensions import override

from entrypoints.cli import main
from entrypoints.demo import HIGHEST_PORT, HOST, run_demo
from entrypoints.demo_sample import GUESTS, SALON, SPA
from entrypoints.demo_shop.card_api import CardApi, Cards
from entrypoints.demo_shop.shop import MAX_FORM_BYTES, MAX_LOOKS, ShopCenter, ShopGuest, create_shop
from entrypoints.serve import ServeError
from tests.demo import Demo, running_demo

pytestmark = pytest.mark.slow

ANSWER_WITHIN_SECONDS: Final = 30
ADA, BEN, CARLA, DAN = (f"{guest.first_name} {guest.last_name}" for guest in GUESTS)

ADD_AT_SPA: Final = "Add a card for Still Water Spa on the web"
ADD_AT_SPA_ON_MOBILE: Final = "Add on mobile for Still Water Spa"
ADD_AT_SALON: Final = "Add a card for Corner Hair Salon on the web"
ADD_AT_CLINIC: Final = "Add a card for Clear Skin Clinic on the web"
GOOD_CARD: Final = {"number": "4242424242424242", "expiry": "12/30", "cvc": "123"}


# Starting and stopping it.


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Demo]:
    """Give a demo that the tests of this module share."""
    with running_demo(tmp_path_factory.mktemp("demo")) as running:
        yield running


# A browser without JavaScript.


@dataclass(kw_only=True)
class Form:
    """A form as it stands on a page: its fields, and its buttons by their text."""

    action: str
    fields: dict[str, str] = field(default_factory=dict)
    buttons: dict[str, dict[str, str]] = field(default_factory=dict)


class FormReader(HTMLParser):
    """Reads the forms and the text of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.forms: list[Form] = []
        self.words: list[str] = []
        self._select = ""
        self._button: dict[str, str] | None = None
        self._label: list[str] = []
        self.feed(html)

    @override
    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        match tag:
            case "form":
                self.forms.append(Form(action=given["action"]))
            case "input":
                self.forms[-1].fields[given["name"]] = given.get("value", "")
            case "select":
                self._select = given["name"]
            case "option" if "selected" in given:
                self.forms[-1].fields[self._select] = given["value"]
            case "button":
                self._button = {given["name"]: given["value"]} if "name" in given else {}
                self._label = []
            case _:
                pass

    @override
    def handle_endtag(self, tag: str) -> None:
        if tag == "button" and self._button is not None:
            self.forms[-1].buttons[" ".join("".join(self._label).split())] = self._button
            self._button = None

    @override
    def handle_data(self, data: str) -> None:
        self._label.append(data)
        self.words += data.split()


@dataclass(frozen=True, kw_only=True)
class Page:
    """What a browser shows."""

    status: int
    address: str
    headers: dict[str, str]
    html: str

    @property
    def text(self) -> str:
        """Every word on the page."""
        return " ".join(FormReader(self.html).words)

    def form(self, button: str) -> Form:
        """Give the form that has a button with this text."""
        forms = FormReader(self.html).forms
        found = [form for form in forms if button in form.buttons]
        assert found, f"no button {button!r} on {self.address}: {self.text}"
        return found[0]

    def link(self, text: str) -> str:
        """Give where the link with this text leads."""
        found = re.search(rf'<a [^>]*href="([^"]+)"[^>]*>{text}</a>', self.html)
        assert found, f"no link {text!r} on {self.address}"
        address: str = found[1]
        return urljoin(self.address, unescape(address))


class Visitor:
    """A person with a browser: it keeps cookies, follows redirects, and runs no script."""

    def __init__(self, demo: Demo) -> None:
        self._shop = demo.shop
        self._opener = build_opener(ProxyHandler({}), HTTPCookieProcessor())

    def open(self, address: str) -> Page:
        """Open a page."""
        return self._send(Request(urljoin(self._shop, address)))

    def open_guest(self, name: str) -> Page:
        """Choose a guest from the list."""
        front = self.open("/")
        found = re.search(rf'<a href="([^"]+)">(?:(?!</a>).)*{name}', front.html, re.DOTALL)
        assert found, front.text
        return self.open(found[1])

    def press(self, page: Page, button: str, *, origin: str | None = None, **typed: str) -> Page:
        """Type into the form that has the button, and press it."""
        form = page.form(button)
        sent = {**form.fields, **typed, **form.buttons[button]}
        headers = {"Origin": origin or "/".join(page.address.split("/")[:3])}
        address = urljoin(page.address, form.action)
        return self._send(Request(address, urlencode(sent).encode(), headers))

    def add_card(self, name: str, button: str, **typed: str) -> Page:
        """Add a card, the whole way; gives the page that the visitor comes back to."""
        hosted = self.press(self.open_guest(name), button)
        return self.press(hosted, "Add card", **{**GOOD_CARD, **typed})

    def _send(self, request: Request) -> Page:
        try:
            answer = self._opener.open(request, timeout=ANSWER_WITHIN_SECONDS)
        except HTTPError as error:
            answer = error
        with answer:
            return Page(
                status=answer.status,
                address=answer.url,
                headers=dict(answer.headers),
                html=answer.read().decode(),
            )


@pytest.fixture
def visitor(demo: Demo) -> Visitor:
    """Give a visitor who was never here before."""
    return Visitor(demo)


# What it prints.


def test_the_printed_curl_line_adds_a_card(demo: Demo) -> None:
    answer = run_curl(demo.curl)

    assert answer["success"] is True
    assert str(answer["hosted_payment_uri"]).startswith(f"{demo.api}/hosted-payments?token_id=")


def test_the_printed_token_may_use_cards_for_payments(demo: Demo, visitor: Visitor) -> None:
    visitor.add_card(CARLA, ADD_AT_SPA)
    token = re.search(r"^  Token +(\S+)", demo.printed, re.MULTILINE)
    assert token, demo.printed
    accounts = f"{demo.api}/api/v1/guests/{GUESTS[2].id}/accounts"

    def ask(address: str) -> dict[str, object]:
        return run_curl(["curl", "-sS", address, "-H", f"Authorization: Bearer {token[1]}"])

    account_id = re.search(r"'account_id': '([^']+)'", str(ask(accounts)))
    assert account_id
    assert "payment_reference" in ask(f"{accounts}/{account_id[1]}")


def test_the_console_shows_the_welcome_and_nothing_else(demo: Demo, visitor: Visitor) -> None:
    visitor.open_guest(ADA)

    assert Path(demo.log.parent / "printed").read_text() == demo.printed
    assert demo.log.read_text() == ""


def run_curl(arguments: list[str]) -> dict[str, object]:
    """Run a curl line; where there is no curl, send what it would send."""
    if shutil.which("curl"):
        ran = subprocess.run(
            arguments,
            env={**os.environ, "NO_PROXY": "*"},
            capture_output=True,
            check=True,
            timeout=ANSWER_WITHIN_SECONDS,
        )
        raw = ran.stdout
    else:
        address = next(part for part in arguments if part.startswith("http"))
        options = list(pairwise(arguments))
        headers = dict(value.split(": ", 1) for name, value in options if name == "-H")
        body = next((value.encode() for name, value in options if name == "-d"), None)
        request = Request(address, body, headers)
        with build_opener(ProxyHandler({})).open(
            request, timeout=ANSWER_WITHIN_SECONDS
        ) as response:
            raw = response.read()
    answer: dict[str, object] = json.loads(raw)
    return answer


# The flow.


@pytest.mark.parametrize(
    ("button", "number", "listed"),
    [
        (ADD_AT_SPA, "4242424242424242", "4242 for Still Water Spa"),
        (ADD_AT_SPA_ON_MOBILE, "5555555555554444", "4444 for Still Water Spa"),
        (ADD_AT_CLINIC, "4242424242424242", "4242 for Clear Skin Clinic"),
    ],
    ids=["web", "mobile", "address verified"],
)
def test_a_card_is_added_listed_and_removed(
    button: str, number: str, listed: str, visitor: Visitor
) -> None:
    back = visitor.add_card(ADA, button, number=number)

    assert "Card added" in back.text
    assert f"ending in {listed}" in back.text
    assert (
        "Added on mobile" if button == ADD_AT_SPA_ON_MOBILE else "Added on the web"
    ) in back.text

    removed = visitor.press(back, f"Remove this card ending in {listed}")

    assert "Card removed" in removed.text
    assert "No card is kept on file yet." in removed.text
    assert "ending in" not in visitor.open_guest(ADA).text


def test_a_card_that_the_service_refuses_in_the_end_is_told_with_its_reason(
    visitor: Visitor,
) -> None:
    visitor.add_card(BEN, ADD_AT_SPA)

    back = visitor.add_card(BEN, ADD_AT_SPA)

    assert "The card could not be saved It is on file already" in back.text


def test_a_refusal_at_the_start_is_told_in_plain_words(visitor: Visitor) -> None:
    visitor.add_card(BEN, ADD_AT_SALON)

    refused = visitor.press(visitor.open_guest(BEN), ADD_AT_SALON)

    assert refused.status == 400
    assert "The card could not be saved It is on file already, or this center" in refused.text


def test_a_wrong_address_is_refused_and_stays_in_the_form(visitor: Visitor) -> None:
    refused = visitor.press(visitor.open_guest(BEN), ADD_AT_CLINIC, zipcode="abc")

    assert refused.status == 400
    assert "The card could not be saved The billing address could not be confirmed." in refused.text
    assert "Transaction" not in refused.text
    assert refused.form(ADD_AT_CLINIC).fields["zipcode"] == "abc"
    assert "hosted" not in refused.address


def test_while_no_card_has_arrived_the_page_looks_again_but_not_for_ever(
    visitor: Visitor,
) -> None:
    hosted = visitor.press(visitor.open_guest(DAN), ADD_AT_SPA)
    back = visitor.open(hosted.link("Return without adding a card"))

    looks = 1
    while again := re.fullmatch(r"3; url=(.+)", back.headers.get("Refresh", "")):
        assert "No card has arrived yet" in back.text
        back = visitor.open(again[1])
        looks += 1

    assert looks == MAX_LOOKS
    assert "No card has arrived yet" in back.text
    assert "Refresh" in visitor.open(back.link("Look now")).headers
    assert "arrived" not in visitor.open(back.link("I added no card")).text


def test_all_products_of_a_center_are_reached_page_by_page(visitor: Visitor) -> None:
    page = visitor.open(visitor.open("/").link("Products"))
    seen = [page]
    while 'rel="next"' in page.html:
        page = visitor.open(page.link("Next"))
        seen.append(page)

    products = [product.name for product in SPA.products()]
    assert [page.html.count("<li>") for page in seen] == [10, 10, 5]
    assert all(any(name in page.text for page in seen) for name in products)
    assert visitor.open(page.link("Previous")).text == seen[1].text


# What it refuses.


def test_what_the_api_says_of_a_page_number_is_shown(visitor: Visitor) -> None:
    page = visitor.open(f"/centers/{SALON.center.id}/products?page=two")

    assert page.status == 422
    assert "page must be a whole number" in page.text


@pytest.mark.parametrize(
    ("address", "status"),
    [
        ("/nowhere", 404),
        ("/guests/nobody", 404),
        ("/centers/nowhere/products", 404),
        ("/static/../shop.py", 404),
        (f"/guests/{GUESTS[0].id}?visit=x&look=x", 400),
        (f"/guests/{GUESTS[0].id}/cards/{GUESTS[0].id}", 405),
    ],
)
def test_an_address_that_leads_nowhere_has_a_page_of_its_own(
    address: str, status: int, visitor: Visitor
) -> None:
    page = visitor.open(address)

    assert page.status == status
    assert "Back to the guests" in page.text


def test_a_form_from_elsewhere_changes_nothing(demo: Demo, visitor: Visitor) -> None:
    page = visitor.open_guest(DAN)
    refused = [
        visitor.press(page, ADD_AT_SPA, form_token=""),
        visitor.press(page, ADD_AT_SPA, form_token="é"),
        visitor.press(page, ADD_AT_SPA, origin="http://127.0.0.1:1"),
        visitor.press(page, ADD_AT_SPA, origin="null"),
        Visitor(demo).press(page, ADD_AT_SPA),
    ]

    assert [page.status for page in refused] == [403] * 5
    assert all("This form was not sent from here" in page.text for page in refused)


def test_a_form_that_is_too_long_is_refused(visitor: Visitor) -> None:
    page = visitor.open_guest(DAN)

    assert visitor.press(page, ADD_AT_SPA, center_id="x" * MAX_FORM_BYTES).status == 413


def test_removing_a_card_that_is_gone_says_so(visitor: Visitor) -> None:
    back = visitor.add_card(DAN, ADD_AT_CLINIC)
    button = "Remove this card ending in 4242 for Clear Skin Clinic"
    visitor.press(back, button)

    again = visitor.press(back, button)

    assert again.status == 404
    assert "The card could not be removed It has been removed already." in again.text


@pytest.mark.parametrize(
    "address", ["/", f"/guests/{GUESTS[0].id}", "/nowhere", "/static/shop.css"]
)
def test_every_answer_tells_the_browser_what_it_may_load(
    address: str, demo: Demo, visitor: Visitor
) -> None:
    headers = visitor.open(address).headers

    assert headers["Content-Security-Policy"] == (
        "default-src 'none'; style-src 'self'; img-src 'self'; "
        f"form-action 'self' {demo.api}; frame-ancestors 'none'; base-uri 'none'"
    )
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "same-origin"


# The shop alone.


class BrokenApi(CardApi):
    """A client with a fault of its own."""

    @override
    def cards(self, guest_id: str, *, page: str) -> Cards:
        raise RuntimeError("a secret of the inside")


def a_shop(api: CardApi) -> TestClient:
    shop = create_shop(
        api=api,
        origin="http://127.0.0.1:8001",
        payments_origin="http://127.0.0.1:8000",
        guests=[ShopGuest(id="ada", name="Ada", email="ada@example.com")],
        centers=[ShopCenter(id="spa", name="Spa", about="", needs_address=False)],
    )
    return TestClient(shop, headers={"Host": "127.0.0.1:8001"})


def test_without_the_api_the_page_says_so() -> None:
    with socket.create_server((HOST, 0)) as taken:
        address = f"{HOST}:{taken.getsockname()[1]}"

    page = a_shop(CardApi(address, "token")).simulate_get("/guests/ada")

    assert page.status_code == 503
    assert "The card service cannot be reached just now." in page.text


def test_a_fault_of_the_shop_shows_nothing_of_the_inside() -> None:
    page = a_shop(BrokenApi(HOST, "token")).simulate_get("/guests/ada")

    assert page.status_code == 500
    assert "The fault is ours." in page.text
    assert "secret" not in page.text
    assert "Traceback" not in page.text


def test_a_visitor_who_comes_by_another_name_is_sent_to_the_one_in_use() -> None:
    page = a_shop(CardApi(HOST, "token")).simulate_get(
        "/guests/ada", headers={"Host": "localhost:8001"}
    )

    assert page.status == falcon.HTTP_303
    assert page.headers["Location"] == "http://127.0.0.1:8001/"


# Starting and stopping.


def test_a_second_run_finds_the_cards_of_the_first(tmp_path: Path) -> None:
    with running_demo(tmp_path, with_signal=signal.SIGINT) as first:
        Visitor(first).add_card(ADA, ADD_AT_SPA)

    with running_demo(tmp_path) as second:
        assert "ending in 4242" in Visitor(second).open_guest(ADA).text

    assert (tmp_path / "cardonfile-demo.db").exists()


def test_a_taken_port_is_told_in_one_sentence() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        ran = CliRunner().invoke(main, ["demo", "--port", str(port)])

    assert ran.exit_code == 1
    assert ran.output == (
        f"Error: cannot listen on {HOST} port {port}: Address already in use; "
        "--port takes another\n"
    )


def test_there_must_be_a_port_for_the_shop_too() -> None:
    with pytest.raises(ServeError, match="two ports"):
        run_demo(HIGHEST_PORT + 1)
