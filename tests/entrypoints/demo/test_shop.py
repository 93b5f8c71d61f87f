"""The responses of the demo shop, which calls the real API in another thread."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode
from uuid import uuid4

import pytest
from falcon.testing import Result, TestClient

from adapters.events.payload import encode
from adapters.events.signatures import signed_headers
from domain.events.event import Secrets
from domain.identifiers import TokenId
from domain.sessions.session import CardSession
from entrypoints.demo.sample import store_sample
from entrypoints.demo.service import Fault
from entrypoints.demo.shop import BACK, EVENTS, CardApi, Shop, Timeline
from tests.browser.served import listening
from tests.builders import an_event_delivery
from tests.installation import Installation

HOST: Final = "127.0.0.1:8001"
ORIGIN: Final = f"http://{HOST}"
PAYMENTS: Final = "http://127.0.0.1:8000"
DOCS: Final = f"{PAYMENTS}/docs"
SECRET: Final = Secrets.of("secret of the shop").current
VISIT: Final = str(uuid4())
AT_BACK: Final = f"{BACK}?visit={VISIT}"


class ShopUnderTest:
    """A shop, with what its browser sends and what it reads in the service's log."""

    def __init__(self, api: CardApi) -> None:
        self.timeline = Timeline()
        self.switched: list[tuple[str, set[str]]] = []
        shop = Shop(api, self.timeline, SECRET, ORIGIN, PAYMENTS, DOCS, self._switch)
        self.client = TestClient(shop.app(), headers={"Host": HOST})

    def _switch(self, session: str, names: Collection[str]) -> None:
        self.switched.append((session, {*names} - {"visit"}))

    def get(self, path: str = "/", **headers: str) -> Result:
        return self.client.simulate_get(path, headers=headers)

    def press(self, *faults: str, origin: str | None = ORIGIN, visit: str = VISIT) -> Result:
        """Send the form with these fault switches on."""
        form = urlencode({**dict.fromkeys(faults, "on"), "visit": visit})
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        # TestClient sends no header whose value is None.
        return self.client.simulate_post(
            "/", body=form, headers={**headers, **({"Origin": origin} if origin else {})}
        )

    def logs(self, session: CardSession, event: str, **fields: object) -> None:
        """Log a line about a session, as the service does."""
        known = {"session": session.prefix, "guest_id": session.guest_id}
        self.timeline.read({"event": event, **known, **fields})

    def gets_event(
        self, session: CardSession, *, secret: str = SECRET, age: int = 0, **headers: str
    ) -> Result:
        """Send the event about a session, as the service does."""
        event = replace(
            an_event_delivery().event,
            token_id=session.token_id,
            guest_id=session.guest_id,
            reason="imported",
        )
        body, sent_at = encode(event), datetime.now(UTC) - timedelta(seconds=age)
        signed = signed_headers(event.event_id, body, [secret], sent_at)
        return self.client.simulate_post(EVENTS, body=body, headers={**signed, **headers})


@pytest.fixture
def token(installation: Installation) -> str:
    return installation.token_for(installation.caller)


@pytest.fixture
def shop(installation: Installation, token: str) -> Iterator[ShopUnderTest]:
    store_sample(installation.container.storage())
    with listening(installation.container.app()) as port:
        yield ShopUnderTest(CardApi(f"127.0.0.1:{port}", token))


def a_session(shop: ShopUnderTest, installation: Installation, visit: str = VISIT) -> CardSession:
    """Press the button of the shop, and open the hosted page."""
    link = shop.press(visit=visit).headers["Location"]
    session = installation.session(TokenId(link.partition("token_id=")[2].partition("&")[0]))
    installation.open_page(session)
    shop.logs(session, "session_created")
    return session


def test_pressing_the_button_of_the_demo_shop_twice_leads_to_the_same_hosted_page(
    shop: ShopUnderTest, installation: Installation
) -> None:
    sent, again = (shop.press(Fault.LOSE, Fault.KILL) for _ in range(2))
    link = sent.headers["Location"]
    assert (sent.status_code, again.headers["Location"]) == (303, link)
    assert link.startswith(f"{PAYMENTS}/hosted-payments?token_id=")
    visit = str(uuid4())
    other = a_session(shop, installation, visit=visit)
    assert other.redirect_uri == f"{ORIGIN}{BACK}?visit={visit}"

    # The faults are those of the session.
    first = link.partition("token_id=")[2][: len(other.prefix)]
    faults = {Fault.LOSE, Fault.KILL}
    assert shop.switched == [(first, faults), (first, faults), (other.prefix, set())]


def test_the_demo_shop_shows_the_steps_of_the_newest_session(
    shop: ShopUnderTest, installation: Installation
) -> None:
    first = a_session(shop, installation)
    shop.logs(first, Fault.HANG)
    assert "Silent" in shop.get().text

    second = a_session(shop, installation, visit=str(uuid4()))
    shop.logs(first, Fault.LOSE)
    shop.logs(second, "card_stored")

    page = shop.get().text
    assert "Card stored" in page
    assert "Silent" not in page
    assert "Webhook lost" not in page
    assert "At the front desk" in page
    # As a replacement on the guest's own page does: the shop did not start the session.
    shop.logs(installation.add_card(), "session_created")
    assert "At the front desk" not in shop.get().text


@pytest.mark.parametrize(
    ("event", "state"),
    [
        ("page_made", "The card page is open. No card has been sent yet."),
        ("psp_declined", "The card was declined. Another one can be tried."),
        ("psp_collected", "We are checking your card."),
        ("guest_went_back", "You went back without adding a card."),
        ("session.failed", "No card was added."),
        ("session.expired", "No card was added."),
    ],
)
def test_the_demo_shop_shows_each_visitor_only_the_progress_of_their_own_session(
    shop: ShopUnderTest, installation: Installation, event: str, state: str
) -> None:
    session = a_session(shop, installation)
    assert "No card has been sent yet." in shop.get().text

    shop.logs(session, event, verified=True)
    a_session(shop, installation, visit=str(uuid4()))

    assert state in shop.get(f"/?visit={VISIT}").text
    assert state in shop.get(AT_BACK).text
    for unknown in (BACK, f"{BACK}?visit=", f"{BACK}?visit={uuid4()}"):
        assert state not in shop.get(unknown).text


def test_the_demo_shop_shows_a_repeated_event_and_its_card_only_once(
    shop: ShopUnderTest, installation: Installation
) -> None:
    session = a_session(shop, installation)
    installation.type_card_and_return(session)
    assert "Cards of this guest on file" not in shop.get().text

    assert [shop.gets_event(session).status_code for _ in range(2)] == [204, 204]

    page = shop.get().text
    assert page.count("account.stored") == 1
    assert "Reason: imported." in page
    assert "Cards of this guest on file: 1" in page
    assert "ending in 4242" in page
    assert "Your card is on file." in shop.get(AT_BACK).text


@pytest.mark.parametrize(
    ("secret", "age", "headers"),
    [
        ("whsec_b3RoZXI=", 0, {}),
        (SECRET, 301, {}),
        (SECRET, -310, {}),
        (SECRET, 0, {"webhook-timestamp": "9" * 5000}),
        (SECRET, 0, {"webhook-timestamp": "now"}),
        (SECRET, 0, {"webhook-signature": ""}),
    ],
)
def test_the_demo_shop_refuses_an_event_without_a_current_signature(
    shop: ShopUnderTest, installation: Installation, secret: str, age: int, headers: dict[str, str]
) -> None:
    session = a_session(shop, installation)

    refused = shop.gets_event(session, secret=secret, age=age, **headers)

    assert refused.status_code == 400
    assert "account.stored" not in shop.get().text


@pytest.mark.parametrize("origin", [None, "null", "http://127.0.0.1:8001.evil.example"])
def test_the_demo_shop_refuses_a_form_from_another_site(
    shop: ShopUnderTest, origin: str | None
) -> None:
    assert shop.press(Fault.KILL, origin=origin).status_code == 403
    assert shop.switched == []


def test_the_demo_shop_does_not_send_its_secrets_to_the_browser(
    shop: ShopUnderTest, installation: Installation, token: str
) -> None:
    session = a_session(shop, installation)
    responses = [
        *(shop.get(path) for path in ("/", BACK, "/nowhere")),
        shop.press(visit=str(uuid4())),
        shop.gets_event(session),
    ]

    assert [response.status_code for response in responses] == [200, 200, 404, 303, 204]
    for response in responses:
        assert token not in response.text + str(response.headers)
        assert SECRET not in response.text
        assert "Set-Cookie" not in response.headers
        assert response.headers["Content-Security-Policy"] == (
            "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; "
            "connect-src 'self'; frame-ancestors 'none'; base-uri 'none'; "
            f"form-action 'self' {PAYMENTS} https:"
        )
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "same-origin"


def test_the_demo_shop_reports_that_the_api_is_unavailable() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    shop = ShopUnderTest(CardApi(address, "token"))

    assert shop.press().status_code == 503
    assert shop.get().status_code == 200
