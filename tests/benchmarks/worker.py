"""Benchmarks of the worker without browsers: sessions settled per second, and its delay."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode, urlsplit

from adapters.psp_suite.samples import a_uuid
from adapters.stripe.plugin import NAME as STRIPE
from adapters.system import SystemClock
from domain.cards.account import Account
from domain.identifiers import GuestId, TokenId
from tests.benchmarks.results import Row
from tests.benchmarks.servers import POSTGRESQL, SQLITE
from tests.builders import CENTER_ID, a_guest, an_event_delivery
from tests.databases import committed
from tests.event_receiver import EventReceiver
from tests.fake_stripe.server import running
from tests.fake_stripe.stripe import TEST_KEY, TEST_SECRET
from tests.installation import GOOD_CARD, REDIRECT_URI, Installation
from tests.postgresql import new_database
from tests.programs import SERVE, Program, free_port
from tests.waiting import wait_until

SESSIONS: Final = 300
CALL_SECONDS: Final = 0.3
"""How long each call to the PSP takes."""
EVENTS: Final = 1600
ENDPOINTS: Final = 8
SETTINGS: Final = ((SQLITE, 1), (POSTGRESQL, 1), (POSTGRESQL, 2))
"""Databases, each with a number of workers."""
PROCESSES_SETTINGS: Final = ((POSTGRESQL, 1), (POSTGRESQL, 2), (POSTGRESQL, 4))
"""More and more workers on one PostgreSQL."""

CARDS_A_SECOND: Final = 10
DELAY_SECONDS: Final = 30


def measure(
    folder: Path,
    postgresql: str,
    *,
    rounds: int,
    say: Callable[[str], None],
    settings: Sequence[tuple[str, int]] = SETTINGS,
    has_events: bool = False,
) -> Iterator[Row]:
    """Measure how fast workers settle sessions with a slow PSP, after the cards were typed.

    With `has_events`, measure how fast workers send events to eight endpoints instead. The
    endpoints accept each event immediately.
    """
    what, measured = ("events", _sent) if has_events else ("settlements", _settled)
    for number in range(1, rounds + 1):
        say(f"{what}, round {number} of {rounds}")
        for database, workers in settings:
            own = folder / f"{what}-{number}-{database}-{workers}"
            own.mkdir()
            yield {
                "database": database,
                "workers": workers,
                "round": number,
                "per_second": measured(own, database, workers, postgresql),
            }


def _settled(folder: Path, database: str, workers: int, postgresql: str) -> float:
    with ExitStack() as stack:
        stripe = stack.enter_context(running(SystemClock()))
        settings = {
            "CARDONFILE_STRIPE_SECRET_KEY": TEST_KEY,
            "CARDONFILE_STRIPE_WEBHOOK_SECRETS": TEST_SECRET,
            "CARDONFILE_STRIPE_API_BASE": stripe.url,
        }
        if database == POSTGRESQL:
            settings["CARDONFILE_DATABASE_URL"] = stack.enter_context(new_database(postgresql))
        installation = _installation(folder, stack, **settings)
        installation.configure(provider=STRIPE)
        sessions = [
            installation.add_card(guest_id=guest_id) for guest_id in _guests(installation, SESSIONS)
        ]
        for session in sessions:
            _set_clock(installation)
            page = urlsplit(installation.open_page(session)).path.rpartition("/")[2]
            stripe.stripe.submit_card(page, GOOD_CARD)
        settings.setdefault("CARDONFILE_DATABASE_URL", f"sqlite:///{installation.database}")
        programs = [
            stack.enter_context(_program(folder / f"worker-{number}", "work", **settings))
            for number in range(workers)
        ]
        for program in programs:
            program.wait_for("working")
        stripe.server.delay_seconds = CALL_SECONDS
        opened = [installation.session(each.token_id) for each in sessions]
        with committed(installation.storage) as unit:
            for session in opened:
                unit.sessions.update(replace(session, due_at=datetime.now(UTC)))
        began = time.perf_counter()
        _cards(installation, [session.token_id for session in sessions])
        return SESSIONS / (time.perf_counter() - began)


def _sent(folder: Path, database: str, workers: int, postgresql: str) -> float:
    with ExitStack() as stack:
        receiver = stack.enter_context(EventReceiver())
        settings = {"CARDONFILE_EVENT_NETWORKS": "127.0.0.0/8"}
        if database == POSTGRESQL:
            settings["CARDONFILE_DATABASE_URL"] = stack.enter_context(new_database(postgresql))
        installation = _installation(folder, stack, **settings)
        settings.setdefault("CARDONFILE_DATABASE_URL", f"sqlite:///{installation.database}")
        endpoints = [
            installation.has_endpoint(f"{receiver.url}/{number}") for number in range(ENDPOINTS)
        ]
        for number in range(workers):
            program = _program(folder / f"worker-{number}", "work", **settings)
            stack.enter_context(program).wait_for("working")
        now = datetime.now(UTC)
        with committed(installation.storage) as unit:
            for number in range(EVENTS):
                endpoint_id = endpoints[number % ENDPOINTS].endpoint_id
                unit.event_deliveries.add(
                    an_event_delivery(number, endpoint_id=endpoint_id, due_at=now)
                )
        began = time.perf_counter()
        wait_until(lambda: len(receiver.received) >= EVENTS, seconds=120)
        return EVENTS / (time.perf_counter() - began)


def measure_delay(folder: Path, *, say: Callable[[str], None]) -> Iterator[Row]:
    """Measure the time from typing a card on the page of the fake PSP until it is stored."""
    say("cards without browsers")
    own = folder / "settled"
    own.mkdir()
    with ExitStack() as stack:
        port = free_port()
        installation = _installation(own, stack)
        token = installation.token_for(installation.caller)
        program = stack.enter_context(
            _program(
                own / "server",
                *("serve", "--port", str(port)),
                CARDONFILE_DATABASE_URL=f"sqlite:///{installation.database}",
                CARDONFILE_PUBLIC_BASE_URL=f"http://127.0.0.1:{port}",
            )
        )
        program.wait_for("serving")
        guests = _guests(installation, DELAY_SECONDS * CARDS_A_SECOND)
        began = time.perf_counter()

        def type_card(number: int) -> TokenId:
            time.sleep(max(0.0, began + number / CARDS_A_SECOND - time.perf_counter()))
            return _type_card(port, token, guests[number])

        with ThreadPoolExecutor(CARDS_A_SECOND) as pool:
            token_ids = list(pool.map(type_card, range(len(guests))))
        delays = sorted(
            (account.created_at - account.consented_at) / timedelta(milliseconds=1)
            for account in _cards(installation, token_ids)
        )
        yield {
            "cards": len(delays),
            "p50_ms": statistics.median(delays),
            "p99_ms": delays[int(len(delays) * 0.99) - 1],
        }


def _type_card(port: int, token: str, guest_id: GuestId) -> TokenId:
    """Type a card on the page of the PSP. The browser does not return from the page."""
    connection = HTTPConnection("127.0.0.1", port, timeout=30)

    def request(method: str, path: str, body: str = "", **headers: str) -> tuple[str, str]:
        connection.request(method, path, body or None, headers)
        response = connection.getresponse()
        text = response.read().decode()
        return text, (response.headers["Location"] or "").partition(f":{port}")[2]

    fields = f'{{"center_id": "{CENTER_ID}", "redirect_uri": "{REDIRECT_URI}"}}'
    bearer = {"Authorization": f"bearer {token}", "Content-Type": "application/json"}
    added, _ = request("POST", f"/api/v1/guests/{guest_id}/accounts", fields, **bearer)
    link = added.partition('"hosted_payment_uri":"')[2].partition('"')[0]
    _, page = request("GET", link.partition(f":{port}")[2])
    shown, _ = request("GET", page)
    form_token = shown.partition('name="form_token" value="')[2].partition('"')[0]
    typed = {"number": GOOD_CARD, "expiry": "08/40", "cvc": "123", "form_token": form_token}
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    request("POST", page, urlencode(typed), **form)
    connection.close()
    return TokenId(added.partition('"token_id":"')[2].partition('"')[0])


def _program(folder: Path, *command: str, **settings: str) -> Program:
    folder.mkdir()
    settings.setdefault("CARDONFILE_PUBLIC_BASE_URL", "http://127.0.0.1")
    settings.setdefault("CARDONFILE_CARD_TESTING_LIMITS", "off")
    return Program(folder, SERVE, *command, CARDONFILE_LOG_FORMAT="json", **settings)


# Any: the settings are keywords beside others of other types.
def _installation(folder: Path, stack: ExitStack, **settings: Any) -> Installation:
    installation = Installation(folder, **settings)
    stack.callback(installation.close)
    _set_clock(installation)
    return installation


def _set_clock(installation: Installation) -> None:
    """Set the installation's clock to the current time. Otherwise this clock stands still.

    If it were slow, the fake Stripe would refuse pages because they expire too soon.
    """
    installation.clock.advance(datetime.now(UTC) - installation.clock.now())


def _guests(installation: Installation, number: int) -> list[GuestId]:
    guest_ids = [GuestId(a_uuid(50_000 + each)) for each in range(number)]
    for guest_id in guest_ids:
        installation.has_guest(a_guest(id=guest_id))
    return guest_ids


def _is_settled(installation: Installation, token_id: TokenId) -> bool:
    return installation.session(token_id).is_settled


def _cards(installation: Installation, token_ids: Sequence[TokenId]) -> list[Account]:
    """Wait until the card of each session is stored. Return the accounts."""
    for token_id in token_ids:
        wait_until(partial(_is_settled, installation, token_id), seconds=120)
    return [installation.account(installation.session(each).account_id) for each in token_ids]
