"""What the tests of the fake PSP share: the PSP, requests for its pages, and a guest's browser."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path
from urllib.parse import urlencode

import falcon
import pytest
from falcon.testing import Result, TestClient
from sqlite_utils import Database

from adapters.fake_psp.cards import CardEntry
from adapters.fake_psp.pages import add_routes
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import FakePsp
from adapters.psp_suite.clock import START, SettableClock
from adapters.psp_suite.ids import SeededIds
from domain.billing import BillingInfo
from domain.identifiers import GuestId, GuestReference, MerchantAccount, TokenId
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


def hosted_page_request(
    *,
    session: int = 1,
    attempt: int = 1,
    merchant_account: MerchantAccount = MAIN,
    guest_reference: GuestReference | None = None,
    guest_name: str = "Anna Lovelace",
    center_name: str = "Harbor Spa",
    billing_info: BillingInfo | None = None,
    avs: bool = False,
    redirect_origin: str = "https://shop.example",
    language: str = "en",
    lives_for: timedelta = timedelta(minutes=30),
) -> HostedPageRequest:
    """Make the request for a page. `session` numbers the sessions of a test."""
    token_id = TokenId(f"00000000-0000-4000-8000-{session:012}")
    return HostedPageRequest(
        token_id=token_id,
        attempt=attempt,
        merchant_account=merchant_account,
        guest_id=GuestId("11111111-1111-4111-8111-111111111111"),
        guest_reference=guest_reference,
        guest_name=guest_name,
        guest_email="anna@example.com",
        center_name=center_name,
        billing_info=billing_info,
        avs=avs,
        return_uri=f"{BASE_URL}/hosted-payments/return?token_id={token_id}",
        cancel_uri=f"{BASE_URL}/hosted-payments/cancel?token_id={token_id}",
        redirect_origin=redirect_origin,
        consent=a_shipped_consent(center_name, language),
        begun_at=START,
        live_until=START + lives_for,
    )


def card_entry(number: str = GOOD, *, zipcode: str = "98101") -> CardEntry:
    """Make a card as read from the form."""
    return CardEntry(number=number, expiry_month=8, expiry_year=2030, zipcode=zipcode)


def lock(psp: FakePsp, database: Path) -> Database:
    """Hold the write lock by another connection, until it is closed. This PSP does not wait."""
    with psp._database.write() as db:
        db.execute("PRAGMA busy_timeout = 1")
    other = Database(database)
    other.execute("BEGIN IMMEDIATE")
    return other


class Browser:
    """A guest's browser without JavaScript."""

    def __init__(self, psp: FakePsp, client: TestClient | None = None) -> None:
        """Open the pages alone, or with the client of a whole application."""
        app = falcon.App[falcon.Request, falcon.Response]()
        add_routes(app, psp)
        self.client = client or TestClient(app)

    def open(self, reference: str, *, challenge: bool = False) -> Result:
        """Open the card form, or the challenge."""
        return self.client.simulate_get(_path(reference, challenge=challenge))

    def pay(self, reference: str, number: str = GOOD, **typed: str) -> Result:
        """Type a card into the form and send it; `typed` replaces what is typed otherwise."""
        fields = {"number": number, "expiry": "08 / 30", "cvc": "123", **typed}
        return self.send(reference, fields)

    def answer(self, reference: str, answer: str) -> Result:
        """Press a button of the challenge."""
        return self.send(reference, {"answer": answer}, challenge=True)

    def send(
        self,
        reference: str,
        fields: dict[str, str],
        *,
        challenge: bool = False,
    ) -> Result:
        """Send a form with what the page hides in it."""
        fields = self.hidden(reference, challenge=challenge) | fields
        return self.send_body(reference, urlencode(fields, errors="surrogatepass"), challenge)

    def hidden(self, reference: str, *, challenge: bool = False) -> dict[str, str]:
        """Return what the form of a page hides."""
        shown = self.open(reference, challenge=challenge)
        return dict(re.findall(r'type="hidden" name="(\w+)" value="([0-9a-f]+)"', shown.text))

    def send_body(
        self,
        reference: str,
        body: str | bytes,
        challenge: bool = False,
        headers: dict[str, str] | None = None,
    ) -> Result:
        """Send raw bytes in place of a form."""
        defaults = {"Content-Type": "application/x-www-form-urlencoded", "Origin": BASE_URL}
        return self.client.simulate_post(
            _path(reference, challenge=challenge),
            body=body,
            headers={**defaults, **(headers or {})},
        )


def _path(reference: str, *, challenge: bool) -> str:
    return f"/fake-psp/pages/{reference}" + ("/challenge" if challenge else "")


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
    return Browser(psp)
