"""The demo shop's responses. The API that it calls is a real one, served in a thread."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlencode
from wsgiref.simple_server import WSGIRequestHandler, make_server

import pytest
from falcon.testing import Result, TestClient
from typing_extensions import override

from adapters.events.payload import encode
from adapters.events.signatures import signed_headers
from adapters.psp.contract.samples import GUEST_ID
from domain.events.event import Secrets
from domain.identifiers import TokenId
from domain.sessions.session import CardSession
from entrypoints.demo.shop import COOKIE, EVENTS, MAX_LOOKS, REMOVED, CardApi, Shop
from tests.builders import CENTER_ID, a_guest, an_event_delivery
from tests.installation import MISMATCHING_CARD, Installation

ORIGIN: Final = "http://127.0.0.1:8001"
PAYMENTS: Final = "http://127.0.0.1:8000"
GUEST: Final = f"/guests/{GUEST_ID}"
ADD: Final = f"{GUEST}/centers/{CENTER_ID}"
NAME: Final = "<b>Zoe & Null</b>"
ADDRESS: Final = {"address": "1 Main Street", "zipcode": "98101", "country_code": "US"}
HEADERS: Final = {"Host": "127.0.0.1:8001", "Origin": ORIGIN}
FORM: Final = {**HEADERS, "Content-Type": "application/x-www-form-urlencoded"}
SECRET: Final = Secrets.of("secret of the shop").current


class _Silent(WSGIRequestHandler):
    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


def make_client(api: CardApi) -> TestClient:
    shop = Shop(
        api,
        secret=SECRET,
        origin=ORIGIN,
        payments_origin=PAYMENTS,
        guests={GUEST_ID: NAME},
        address=ADDRESS,
    )
    return TestClient(shop.app(), headers=HEADERS)


@pytest.fixture
def token(installation: Installation) -> str:
    return installation.token_for(installation.caller)


@pytest.fixture
def shop(installation: Installation, token: str) -> Iterator[TestClient]:
    app = installation.container.app()
    with make_server("127.0.0.1", 0, app, handler_class=_Silent) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield make_client(CardApi(f"127.0.0.1:{server.server_port}", token))
        server.shutdown()
        thread.join()


def press(shop: TestClient, path: str = ADD, **fields: str) -> Result:
    """Send a form."""
    return shop.simulate_post(path, body=urlencode(fields), headers=FORM)


def add_card(shop: TestClient, installation: Installation, key: str = "1") -> CardSession:
    """Press the button, and open the hosted page."""
    sent = press(shop, key=key)
    session = installation.session(TokenId(sent.cookies[COOKIE].value))
    installation.open_page(session)
    return session


def come_back(shop: TestClient, session: CardSession, look: int = 1) -> Result:
    cookies = {COOKIE: session.token_id}
    return shop.simulate_get(f"{GUEST}/back", cookies=cookies, params={"look": look})


def test_the_button_leads_to_the_hosted_page(shop: TestClient, installation: Installation) -> None:
    installation.configure(avs=True)

    sent, again = (press(shop, key="of-the-form") for _ in range(2))

    assert sent.status_code == 303
    assert again.headers["Location"] == sent.headers["Location"]
    assert sent.headers["Location"].startswith(f"{PAYMENTS}/hosted-payments?token_id=")
    session = installation.session(TokenId(sent.cookies[COOKIE].value))
    assert session.redirect_uri == f"{ORIGIN}{GUEST}/back"
    assert session.billing_info is not None
    assert session.billing_info.zipcode == "98101"
    assert "HttpOnly" in sent.headers["Set-Cookie"]


def give_nothing(installation: Installation, session: CardSession) -> None:
    """Leave the page open."""


def come_back_without_a_card(installation: Installation, session: CardSession) -> None:
    installation.return_to_shop(session)


def cancel(installation: Installation, session: CardSession) -> None:
    installation.use_cases.cancel_hosted_page(token_id=session.token_id)


def give_a_card(installation: Installation, session: CardSession) -> None:
    installation.type_card(session)
    installation.return_to_shop(session)


def give_a_card_on_file(installation: Installation, session: CardSession) -> None:
    give_a_card(installation, installation.opened_session(billing_info=ADDRESS))
    give_a_card(installation, session)


def give_a_card_with_another_address(installation: Installation, session: CardSession) -> None:
    installation.type_card(session, MISMATCHING_CARD)
    installation.return_to_shop(session)


def let_it_expire(installation: Installation, session: CardSession) -> None:
    installation.clock.advance(timedelta(hours=1))
    installation.reconcile_until_idle()


@pytest.mark.parametrize(
    ("act", "shown", "is_to_come"),
    [
        (give_nothing, "No card has arrived yet", False),
        (cancel, "No card was added", False),
        (come_back_without_a_card, "No card has arrived yet", True),
        (give_a_card, "Card added", True),
        (give_a_card_on_file, "It is on file already", True),
        (give_a_card_with_another_address, "Your bank does not know this billing address.", True),
        (let_it_expire, "has expired", True),
    ],
)
def test_the_page_looks_again_while_the_result_is_to_come(
    act: Callable[[Installation, CardSession], None],
    shown: str,
    is_to_come: bool,
    shop: TestClient,
    installation: Installation,
) -> None:
    installation.configure(avs=True)
    session = add_card(shop, installation)
    act(installation, session)

    page = come_back(shop, session)

    assert shown in page.text
    assert page.headers.get("Refresh") == (f"3; url={GUEST}/back?look=2" if is_to_come else None)
    assert "Refresh" not in come_back(shop, session, look=MAX_LOOKS).headers


def send_event(
    shop: TestClient, session: CardSession, *, secret: str = SECRET, age: int = 0
) -> Result:
    """Send the event about a session, as the service does."""
    event = replace(an_event_delivery().event, token_id=session.token_id)
    body = encode(event)
    headers = signed_headers(
        event.event_id, body, [secret], datetime.now(UTC) - timedelta(seconds=age)
    )
    return shop.simulate_post(EVENTS, body=body, headers={"Host": HEADERS["Host"], **headers})


def test_a_verified_event_is_all_that_the_page_waits_for(
    shop: TestClient, installation: Installation
) -> None:
    session = add_card(shop, installation)
    give_a_card(installation, session)

    statuses = [send_event(shop, session).status_code for _ in range(2)]

    assert statuses == [204, 204]
    page = come_back(shop, session)
    assert page.text.count("account.stored") == 1
    assert "Refresh" not in page.headers


@pytest.mark.parametrize(("secret", "age"), [("whsec_b3RoZXI=", 0), (SECRET, 301)])
def test_an_event_with_a_wrong_or_old_signature_is_refused(
    shop: TestClient, installation: Installation, secret: str, age: int
) -> None:
    session = add_card(shop, installation)

    assert send_event(shop, session, secret=secret, age=age).status_code == 400
    assert shop.simulate_post(EVENTS, headers=HEADERS).status_code == 400
    assert "account.stored" not in shop.simulate_get(GUEST).text


def test_a_new_guest_is_created_under_an_id_of_the_shops_own(shop: TestClient) -> None:
    fields = {"first_name": "Eve", "last_name": "Example", "email": "eve@example.com"}
    created = press(shop, "/", **fields)

    assert created.status_code == 303
    assert "Eve Example" in shop.simulate_get(created.headers["Location"]).text
    assert "Eve Example" in shop.simulate_get("/").text
    assert "Check the name" in press(shop, "/", **{**fields, "email": "eve"}).text


def test_a_listed_card_is_removed_once(shop: TestClient, installation: Installation) -> None:
    account = installation.stored_card()
    assert "Visa ending in 4242" in shop.simulate_get(GUEST).text

    removed, again = (press(shop, f"{GUEST}/cards/{account.account_id}") for _ in range(2))

    assert removed.headers["Location"] == GUEST
    assert "Card removed" in shop.simulate_get(GUEST, cookies={REMOVED: "1"}).text
    assert "Card removed" not in shop.simulate_get(GUEST, params={"removed": "1"}).text
    assert again.status_code == 404
    assert "It has been removed already." in again.text
    assert "No card is on file yet." in shop.simulate_get(GUEST).text


@pytest.mark.parametrize("origin", [None, "null", "http://127.0.0.1:8001.evil.example"])
def test_a_form_of_another_site_changes_nothing(
    origin: str | None, shop: TestClient, installation: Installation
) -> None:
    account = installation.stored_card()
    # TestClient sends no header whose value is None.
    headers = {"Host": HEADERS["Host"], **({"Origin": origin} if origin else {})}
    client = TestClient(shop.app, headers=headers)

    for path in (ADD, f"{GUEST}/cards/{account.account_id}"):
        refused = client.simulate_post(path)
        assert refused.status_code == 403
        assert COOKIE not in refused.cookies
    assert len(installation.accounts()) == 1


def test_no_page_shows_a_secret_or_an_unescaped_name(
    shop: TestClient, installation: Installation, token: str
) -> None:
    installation.has_guest(a_guest(first_name="<b>Zoe", last_name="& Null</b>"))
    session = add_card(shop, installation)
    responses = [
        shop.simulate_get("/"),
        press(shop, key="2"),
        come_back(shop, session),
        shop.simulate_get("/nowhere"),
    ]

    assert [response.status_code for response in responses] == [200, 303, 200, 404]
    assert "&lt;b&gt;Zoe &amp; Null&lt;/b&gt;" in responses[2].text
    for response in responses:
        assert NAME not in response.text
        assert token not in response.text + str(response.headers)
        assert SECRET not in response.text
        assert response.headers["Content-Security-Policy"] == (
            "default-src 'none'; style-src 'self'; img-src 'self'; frame-ancestors 'none'; "
            f"base-uri 'none'; form-action 'self' {PAYMENTS}"
        )
        assert response.headers["X-Content-Type-Options"] == "nosniff"
        assert response.headers["Cache-Control"] == "no-store"
        assert response.headers["Referrer-Policy"] == "same-origin"


def test_another_host_name_is_redirected_to_the_one_in_use(shop: TestClient) -> None:
    page = shop.simulate_get(GUEST, headers={"Host": "localhost:8001"})

    assert page.status_code == 303
    assert page.headers["Location"] == ORIGIN


def test_without_the_api_the_page_says_so() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"

    page = make_client(CardApi(address, "token")).simulate_get(GUEST)

    assert page.status_code == 503
    assert "The card service cannot be reached just now." in page.text
