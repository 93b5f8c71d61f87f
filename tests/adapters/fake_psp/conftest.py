"""Fixtures of the fake PSP's tests: the PSP, requests for its pages, and a guest's browser."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import falcon
import pytest
from falcon.testing import Result, TestClient
from sqlite_utils import Database

from adapters.fake_psp.cards import CardEntry
from adapters.fake_psp.pages import add_routes
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import FakePsp, PspPage
from adapters.psp_suite.clock import START, SettableClock
from adapters.psp_suite.ids import SeededIds
from adapters.psp_suite.samples import a_page_request, a_uuid
from domain.identifiers import MerchantAccount, TokenId
from domain.psps.hosted_page import HostedPageRequest
from tests.builders import a_shipped_consent

BASE_URL = "http://127.0.0.1:8000"
MAIN = MerchantAccount("main")

GOOD = "4242424242424242"
MASTERCARD = "5555555555554444"
DECLINED = "4000000000000002"
WRONG_ADDRESS = "4000000000000010"
CHALLENGE = "4000000000003220"
OUT_OF_ORDER = "4000000000000119"
UNPUBLISHED = "4111111111111111"

ADDRESS = {
    "address": "12 Analytical Row",
    "city": "Seattle",
    "state": "WA",
    "zipcode": "98101",
    "country_code": "US",
}


# Any: `changes` are fields of the request, of any type.
def hosted_page_request(
    session: int = 1, *, language: str = "en", **changes: Any
) -> HostedPageRequest:
    """Return a request for a page. `session` is the number of the session within the test."""
    token_id = TokenId(a_uuid(session))
    request = a_page_request(
        token_id=token_id,
        merchant_account=MAIN,
        guest_name="Anna Lovelace",
        guest_email="anna@example.com",
        avs=False,
        return_uri=f"{BASE_URL}/hosted-payments/return?token_id={token_id}",
        cancel_uri=f"{BASE_URL}/hosted-payments/cancel?token_id={token_id}",
        consent=a_shipped_consent(changes.get("center_name", "Harbor Spa"), language),
        begun_at=START,
        live_until=START + timedelta(minutes=30),
    )
    return replace(request, **changes)


REQUEST = hosted_page_request()
CARD = {"number": GOOD, "expiry": "08 / 30", "cvc": "123"}


def card_entry(number: str = GOOD, *, zipcode: str = "98101") -> CardEntry:
    """Return a card as it is read from the form."""
    return CardEntry(number=number, expiry_month=8, expiry_year=2030, zipcode=zipcode)


def lock(psp: FakePsp, database: Path) -> Database:
    """Hold the write lock until the returned connection is closed. The PSP does not wait for it."""
    with psp._database.write() as db:
        db.execute("PRAGMA busy_timeout = 1")
    other = Database(database)
    other.execute("BEGIN IMMEDIATE")
    return other


class Browser:
    """A guest's browser without JavaScript that shows a page."""

    def __init__(self, psp: FakePsp, reference: str, client: TestClient | None = None) -> None:
        """Prepare to open a page, without the rest of the application unless `client` is given."""
        app = falcon.App[falcon.Request, falcon.Response]()
        add_routes(app, psp)
        self.client = client or TestClient(app)
        self.psp = psp
        self.reference = reference
        self.address = f"/fake-psp/pages/{reference}"

    def at(self, **changes: Any) -> Browser:
        """Return a browser at another page, whose request has these `changes`."""
        page = self.psp.start_page(hosted_page_request(**changes))
        return Browser(self.psp, page.reference, self.client)

    @property
    def page(self) -> PspPage:
        """The PSP's record of the page."""
        return self.psp.page(self.reference)

    def open(self, *, challenge: bool = False) -> Result:
        """Open the card form, or the challenge."""
        return self.client.simulate_get(self._path(challenge=challenge))

    def pay(self, number: str = GOOD, **typed: str) -> Result:
        """Type a card into the form and send it. `typed` replaces the default values."""
        return self.send({**CARD, "number": number, **typed})

    def answer(self, answer: str) -> Result:
        """Press a button of the challenge."""
        return self.send({"answer": answer}, challenge=True)

    def send(self, fields: dict[str, str], *, challenge: bool = False) -> Result:
        """Send a form together with its hidden fields."""
        fields = self.hidden(challenge=challenge) | fields
        return self.send_body(urlencode(fields, errors="surrogatepass"), challenge)

    def hidden(self, *, challenge: bool = False) -> dict[str, str]:
        """Return the hidden fields of a page's form."""
        shown = self.open(challenge=challenge)
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([0-9a-f]+)"', shown.text))

    def send_body(
        self, body: str | bytes, challenge: bool = False, headers: dict[str, str] | None = None
    ) -> Result:
        """Send raw bytes in place of a form."""
        defaults = {"Content-Type": "application/x-www-form-urlencoded", "Origin": BASE_URL}
        return self.client.simulate_post(
            self._path(challenge=challenge), body=body, headers={**defaults, **(headers or {})}
        )

    def _path(self, *, challenge: bool) -> str:
        return self.address + ("/challenge" if challenge else "")


@pytest.fixture
def clock() -> SettableClock:
    return SettableClock()


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "fake-psp.db"


@pytest.fixture
def psp(database: Path, clock: SettableClock) -> FakePsp:
    return FakePsp(database, base_url=BASE_URL, clock=clock, ids=SeededIds())


@pytest.fixture
def provider(psp: FakePsp, clock: SettableClock) -> FakeProvider:
    return FakeProvider(psp, webhook_secret=psp.webhook_secret, clock=clock)


@pytest.fixture
def browser(psp: FakePsp) -> Browser:
    """Return a browser at the page of REQUEST."""
    return Browser(psp, psp.start_page(REQUEST).reference)
