"""Machines that serve, clients that send load, and checks of what is stored afterwards."""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from threading import Event
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import msgspec

from adapters.psp_suite.samples import a_uuid
from adapters.sqlite.connection import connect
from domain.errors import PaymentMethodAlreadyExists
from domain.identifiers import AccountId, GuestId, TokenId
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from tests.adapters.http.api import GOOD_BODY
from tests.adapters.postgresql.by_hand import execute
from tests.builders import a_guest
from tests.databases import committed
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, REDIRECT_URI, Installation
from tests.programs import ROOT, SERVE, Program, Server, free_port
from tests.told_events import Told, lost_and_invented
from tests.waiting import wait_until

CLIENTS: Final = 8
# There are few guests, so that clients share guests and most cards are already on file.
GUESTS: Final = [GuestId(a_uuid(1_000 + number)) for number in range(40)]
FATES: Final = ("sent", "answered", "refused", "cut off")
LOST_RESPONSES: Final = 0.1
"""The share of add-cards whose first response the client drops, to retry at another machine."""
WITHOUT_KEY: Final = 0.2
"""The share of add-cards without an Idempotency-Key. They are not retried."""
REMOVED: Final = 0.2
"""The share of cards that are added for one of the client's own guests, and removed again."""
FORM: Final = {"Content-Type": "application/x-www-form-urlencoded"}
PAUSES_SECONDS: Final = (0.05, 0.1, 0.2, *[0.4] * 100)
"""The pauses between retries. After the last one the client fails."""

BEYOND_LEASES: Final = timedelta(minutes=5)
"""After this time, all leases have ended, but no page has expired."""
BEYOND_ALL: Final = timedelta(days=1)
"""After this time, all pages have expired."""

FAULTS: Final = {"internal_error", "reconciler_fault", "reconciling_one_failed"}
"""Log events of bugs."""


# The machines.


class Machine(Server):
    """`cardonfile serve` on a separate machine, which may be killed and started again."""

    def __init__(self, folder: Path, port: int, environment: Mapping[str, str]) -> None:
        self.port = port
        self._folder = folder
        self.environment = environment
        self._programs: list[Program] = []
        self._stack = ExitStack()

    def start(self, source: str = SERVE, *options: str) -> Program:
        """Start the program `source` with `options` for `serve`, and return at once."""
        folder = self._folder / f"{self.port}-{len(self._programs)}"
        folder.mkdir()
        command = ("serve", "--port", str(self.port), *options)
        program = Program(folder, source, *command, **self.environment)
        self._programs.append(self._stack.enter_context(program))
        return program

    def begin(
        self, *arguments: str, program: str = SERVE, stderr: int = subprocess.PIPE
    ) -> subprocess.Popen[str]:
        """Begin a command of `cardonfile` on the machine."""
        return subprocess.Popen(
            [sys.executable, "-W", "error", "-c", program, *arguments],
            cwd=self._folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), **self.environment},
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        )

    def command(self, *arguments: str, program: str = SERVE) -> str:
        """Run a command of `cardonfile` on the machine. Return its output without the line end."""
        begun = self.begin(*arguments, program=program)
        printed, errors = begun.communicate()
        assert begun.returncode == 0, errors
        return printed.rstrip("\n")

    def kill(self) -> None:
        """Kill it."""
        self._programs[-1].tell(signal.SIGKILL)
        assert self._programs[-1].ends() == -signal.SIGKILL

    def stop(self) -> int:
        """Stop it gracefully, and return its exit status."""
        self._programs[-1].tell(signal.SIGTERM)
        return self._programs[-1].ends()

    def close(self) -> None:
        """Kill whatever still runs."""
        self._stack.close()

    def wait_until_ready(self) -> None:
        """Wait until it is ready."""
        wait_until(lambda: self.status("/readyz") == 200)

    def faults(self) -> list[dict[str, Any]]:
        """Return the log lines of bugs."""
        lines = [line for program in self._programs for line in program.lines()]
        return [line for line in lines if line["event"] in FAULTS]


class Machines:
    """Machines on one database and one fake PSP, with an installation that inspects both."""

    def __init__(self, folder: Path, url: str, *, machines: int, **settings: str) -> None:
        """`url` is the address of a migrated database, or of a new file `cards.db`."""
        ports = [free_port() for _ in range(machines)]
        # Any, because they are keywords too. Clients choose the machine and ignore the base URL.
        environment: dict[str, Any] = {
            "CARDONFILE_DATABASE_URL": url,
            "CARDONFILE_FAKE_PSP_DATABASE": str(folder / "fake-psp.db"),
            "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{ports[0]}",
            "CARDONFILE_LOG_FORMAT": "json",
            "CARDONFILE_CARD_TESTING_LIMITS": "off",
            "CARDONFILE_EVENT_NETWORKS": "127.0.0.0/8",
            **settings,
        }
        self.url = url
        self.psp_database = folder / "fake-psp.db"
        self.installation = Installation(
            folder, base_url=environment["CARDONFILE_PUBLIC_BASE_URL"], **environment
        )
        clock = self.installation.clock
        clock.advance(datetime.now(UTC) - clock.now())
        guest_ids = [*GUESTS, *(each for number in range(CLIENTS) for each in own_guests(number))]
        with committed(self.installation.storage) as unit:
            unit.guests.put_many([a_guest(id=guest_id) for guest_id in guest_ids])
        self.token = self.installation.token_for(self.installation.caller)
        # From now on the database may go away.
        self.installation.close()
        self.each = [Machine(folder, port, environment) for port in ports]

    def start(self) -> None:
        """Start them all, and wait until they are ready."""
        for machine in self.each:
            machine.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until all are ready."""
        for machine in self.each:
            machine.wait_until_ready()

    def close(self) -> None:
        """Kill whatever still runs."""
        for machine in self.each:
            machine.close()
        self.installation.close()


def one_machine_on_sqlite(folder: Path, **settings: str) -> Machines:
    """Return one machine with an SQLite file, not started yet."""
    return Machines(folder, f"sqlite:///{folder / 'cards.db'}", machines=1, **settings)


# The clients.


@dataclass(kw_only=True)
class Added:
    """An add-card request from a client.

    `redirect_uri` is unique. `answer` is the response. `card` is the number that the guest typed.
    `status`, `account_id` and `state` are what the client read last.
    """

    guest_id: GuestId
    key: str | None
    redirect_uri: str
    answer: str = ""
    token_id: TokenId = field(default=TokenId(""))
    card: str = ""
    status: SessionStatus = SessionStatus.OPEN
    account_id: AccountId | None = None
    state: str = ""
    is_removed: bool = False


class Request(NamedTuple):
    """A request to any machine."""

    method: str
    address: str
    headers: Mapping[str, str]
    body: str | None = None


class Answer(NamedTuple):
    """The parts of a response that a client looks at."""

    status: int
    location: str
    text: str


class Unexpected(Exception):
    """A response that no client should get, or no response after all retries."""


class Client:
    """Adds and removes cards, on a persistent connection to each machine."""

    def __init__(
        self,
        machines: Machines,
        name: str,
        number: int,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
    ) -> None:
        # All keys exist from the start, because other threads add up the counts at the same time.
        self.fates = [Counter(dict.fromkeys(FATES, 0)) for _ in machines.each]
        self.added: list[Added] = []
        self.given_up: list[Added] = []
        self.unexpected: list[str] = []
        self._names = (f"{name}-{number}-{each}" for each in count(1))
        self._own_guests = own_guests(number)
        self._pauses_seconds = pauses_seconds
        self._random = random.Random(f"{name}-{number}")
        self._token = {"Authorization": f"bearer {machines.token}"}
        self._connections = [machine.connect() for machine in machines.each]
        self._turn = self._random.randrange(len(machines.each))

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    def add_cards_until(self, enough: Callable[[], bool], *, chooses: bool = True) -> None:
        """Add cards one by one. Every second guest types the card, and some cards are removed.

        If `chooses` is set, the last stored card of a shared guest is made the default.
        """
        while not enough():
            try:
                if self._own_guests and self._random.random() < REMOVED:
                    self._add_and_remove_card(self._own_guests[-1])
                elif added := self._add_card(self._random.choice(GUESTS)):
                    if len(self.added) % 2:
                        self._type_card(added, comes_back=self._random.random() < 0.7)
                    self.look_at(added)
                    if chooses and added.status is SessionStatus.COMPLETED:
                        self._ask(Request("PUT", f"{_account(added)}/default", self._token), 200)
            except Unexpected as unexpected:
                self.unexpected.append(str(unexpected))

    def try_to_add_card(self, machine: int) -> int:
        """Send one add-card to one machine. Return the status, or 0 if the connection was cut."""
        adding = self._an_add_card(self._random.choice(GUESTS), has_key=True)
        answer = self._send(machine, self._request_of(adding))
        if answer is not None and answer.status == 200:
            self._keep(adding, answer)
        return answer.status if answer else 0

    def ask_again(self, added: Added) -> None:
        """Repeat the requests of an add-card. The responses must be the same."""
        try:
            if added.key and self._ask(self._request_of(added), 200).text != added.answer:
                raise Unexpected(f"another session under the same key: {added}")
            self.look_at(added)
            if added.is_removed:
                self._ask(Request("GET", _account(added), self._token), 404)
        except Unexpected as unexpected:
            self.unexpected.append(str(unexpected))

    def look_at(self, added: Added) -> None:
        """Read the session. Once it has ended it must not change."""
        path = f"{_accounts(added.guest_id)}/sessions/{added.token_id}"
        text = self._ask(Request("GET", path, self._token), 200).text
        if added.status is not SessionStatus.OPEN and text != added.state:
            raise Unexpected(f"{added} became {text}")
        told = json.loads(text)
        added.status, added.account_id = SessionStatus(told["status"]), told["account_id"]
        added.state = text
        self._ask(Request("GET", _accounts(added.guest_id), self._token), 200)

    def _add_card(self, guest_id: GuestId) -> Added | None:
        """Add a card. Return None when the request had no key and got no response."""
        adding = self._an_add_card(guest_id, has_key=self._random.random() >= WITHOUT_KEY)
        request = self._request_of(adding)
        if adding.key is None:
            self._turn += 1
            first = self._send(self._turn, request)
            if first is None or first.status == 503:
                self.given_up.append(adding)
                return None
            return self._keep(adding, _expected(request, first, 200))
        if self._random.random() < LOST_RESPONSES:
            self._send(self._turn, request, hangs_up=True)
        return self._keep(adding, self._ask(request, 200))

    def _an_add_card(self, guest_id: GuestId, *, has_key: bool) -> Added:
        name = next(self._names)
        key = name if has_key else None
        return Added(guest_id=guest_id, key=key, redirect_uri=f"{REDIRECT_URI}-{name}")

    def _request_of(self, added: Added) -> Request:
        headers = {"Content-Type": "application/json", **self._token}
        if added.key:
            headers["Idempotency-Key"] = added.key
        body = {**GOOD_BODY, "redirect_uri": added.redirect_uri}
        return Request("POST", _accounts(added.guest_id), headers, json.dumps(body))

    def _keep(self, added: Added, answer: Answer) -> Added:
        added.answer = answer.text
        added.token_id = TokenId(json.loads(answer.text)["token_id"])
        self.added.append(added)
        return added

    def _type_card(self, added: Added, *, comes_back: bool) -> None:
        link = json.loads(added.answer)["hosted_payment_uri"]
        page = self._ask(Request("GET", link, {}), 303).location
        number = self._random.choice([GOOD_CARD, OTHER_GOOD_CARD])
        expiry = self._random.choice(["08 / 40", "09 / 41"])
        way_back = self._type_on(page, number, expiry)
        added.card = number
        if comes_back:
            self._come_back(way_back, added)

    def _type_on(self, page: str, number: str, expiry: str) -> str:
        """Type a card on a page of the fake PSP. Return where the browser is redirected."""
        shown = self._ask(Request("GET", page, {}), 200).text
        token = re.search(r'name="form_token" value="(\w+)"', shown)
        assert token is not None
        typed = {"form_token": token[1], "number": number, "expiry": expiry, "cvc": "123"}
        return self._ask(Request("POST", page, FORM, urlencode(typed)), 303).location

    def _come_back(self, way_back: str, added: Added) -> None:
        shop = self._ask(Request("GET", way_back, {}), 303).location
        if shop != added.redirect_uri:
            raise Unexpected(f"the guest was sent to {shop}")

    def _add_and_remove_card(self, guest_id: GuestId) -> None:
        added = self._add_card(guest_id)
        if added is None:
            return
        self._type_card(added, comes_back=True)
        self.look_at(added)
        if added.status is SessionStatus.OPEN:
            # The storage was away when the guest came back. The reconciler will store the card.
            self._own_guests.pop()
            return
        if added.status is not SessionStatus.COMPLETED:
            raise Unexpected(f"the card is not on file: {added}")
        # 404, if the response to an earlier try was cut off.
        self._ask(Request("DELETE", _account(added), self._token), 200, 404)
        added.is_removed = True

    def _ask(self, request: Request, *expected: int) -> Answer:
        """Send a request to one machine after another until a machine responds."""
        for seconds in self._pauses_seconds:
            self._turn += 1
            answer = self._send(self._turn, request)
            if answer is not None and answer.status != 503:
                return _expected(request, answer, *expected)
            time.sleep(seconds)
        raise Unexpected(f"{request.method} {request.address}: never answered")

    def _send(self, turn: int, request: Request, *, hangs_up: bool = False) -> Answer | None:
        """Send a request once. Return None when the connection is cut off before the response."""
        machine = turn % len(self._connections)
        connection, fates = self._connections[machine], self.fates[machine]
        path = urlsplit(request.address)._replace(scheme="", netloc="").geturl()
        try:
            if connection.sock is None:
                connection.connect()
        except ConnectionError:
            return None
        fates["sent"] += 1
        try:
            connection.request(request.method, path, request.body, dict(request.headers))
            if hangs_up:
                raise ConnectionAbortedError
            response = connection.getresponse()
            text = response.read().decode()
        except TimeoutError:
            raise Unexpected(f"{request.method} {request.address}: no answer in time") from None
        except (ConnectionError, http.client.HTTPException):
            connection.close()
            fates["cut off"] += 1
            return None
        fates["refused" if response.status == 503 else "answered"] += 1
        return Answer(response.status, response.getheader("Location", ""), text)


def own_guests(number: int) -> list[GuestId]:
    """Return the guests that only the client with this number uses."""
    return [GuestId(a_uuid(2_000 + each * CLIENTS + number)) for each in range(40)]


def _accounts(guest_id: GuestId) -> str:
    return f"/api/v1/guests/{guest_id}/accounts"


def _account(added: Added) -> str:
    return f"{_accounts(added.guest_id)}/{added.account_id}"


def _expected(request: Request, answer: Answer, *statuses: int) -> Answer:
    if answer.status not in statuses:
        raise Unexpected(f"{request.method} {request.address}: {answer}")
    return answer


class Clients:
    """Many clients, with the totals of what they saw."""

    def __init__(
        self,
        machines: Machines,
        name: str,
        clients: int,
        pauses_seconds: Sequence[float] = PAUSES_SECONDS,
    ) -> None:
        self.each = [Client(machines, name, each, pauses_seconds) for each in range(clients)]

    @property
    def fates(self) -> Counter[str]:
        """Count the requests that were sent, answered, refused (503) and cut off."""
        return sum((fates for client in self.each for fates in client.fates), Counter[str]())

    @property
    def added(self) -> list[Added]:
        """The add-card requests that got a response."""
        return [added for client in self.each for added in client.added]

    @property
    def given_up(self) -> list[Added]:
        """The add-card requests that got no response and were not retried."""
        return [added for client in self.each for added in client.given_up]

    @property
    def unexpected(self) -> list[str]:
        """The responses that no client should get."""
        return [each for client in self.each for each in client.unexpected]

    def answered_by(self, machine: int) -> int:
        """Return the number of requests that a machine has answered."""
        return sum(client.fates[machine]["answered"] for client in self.each)

    def close(self) -> None:
        """Close the connections."""
        for client in self.each:
            client.close()

    @contextmanager
    def doing(self, work: Callable[[Client], object], stop: Event) -> Iterator[None]:
        """Run `work` in a thread for each client. After the block, stop and join the threads."""
        with ThreadPoolExecutor(len(self.each)) as pool:
            running = [pool.submit(work, client) for client in self.each]
            try:
                yield
            finally:
                stop.set()
        for each in running:
            each.result()


# What is stored.


class StoredSession(NamedTuple):
    """The row of a session."""

    token_id: str
    guest_id: str
    center_id: str
    redirect_uri: str
    status: str
    account_id: str | None


class StoredAccount(NamedTuple):
    """A row of a payment account."""

    account_id: str
    token_id: str
    guest_id: str
    center_id: str
    removed_at: str | None
    is_default: str

    @property
    def is_active(self) -> bool:
        """Whether it is not removed."""
        return self.removed_at is None


class StoredDelivery(NamedTuple):
    """A row of an event's delivery."""

    event_id: str
    status: str
    event: str

    @property
    def told(self) -> Told:
        """The content of the event."""
        return msgspec.json.decode(self.event, type=Told)


@dataclass(frozen=True, kw_only=True)
class Records:
    """The stored sessions, deliveries, accounts, and the session of each idempotency key."""

    sessions: Mapping[str, StoredSession]
    keys: Mapping[str, str]
    accounts: Sequence[StoredAccount]
    deliveries: Mapping[str, StoredDelivery]

    def events_lost_and_invented(self) -> tuple[list[Told], list[Told]]:
        """Return events that are missing, and stored events about what did not happen.

        There must be one endpoint, subscribed to all events and added before the first event.
        """
        told = [each.told for each in self.deliveries.values()]
        return lost_and_invented(told, self.sessions.values(), self.accounts)

    def lost(self, added: Sequence[Added]) -> list[Added]:
        """Return the answered requests whose session is missing or differs from the response."""
        active = {each.account_id for each in self.accounts if each.is_active}
        return [each for each in added if self._is_lost(each, active)]

    def unasked(self, added: Sequence[Added], given_up: Sequence[Added]) -> list[str]:
        """Return the `redirect_uri` of each session that no client knows, such as a duplicate.

        An add-card request that was given up may have left one session.
        """
        answered = {each.token_id for each in added}
        may_be = Counter(each.redirect_uri for each in given_up)
        others = [each for each in self.sessions.values() if each.token_id not in answered]
        return list((Counter(each.redirect_uri for each in others) - may_be).elements())

    def without_one_default(self) -> list[tuple[str, str]]:
        """Return each guest and center with active accounts that has no default, or several."""
        defaults = Counter[tuple[str, str]]()
        for each in self.accounts:
            if each.is_active:
                defaults[each.guest_id, each.center_id] += each.is_default in ("1", "true")
        return [place for place, times in defaults.items() if times != 1]

    def _is_lost(self, added: Added, active: Collection[str]) -> bool:
        session = self.sessions.get(added.token_id)
        return (
            session is None
            or (session.guest_id, session.redirect_uri) != (added.guest_id, added.redirect_uri)
            or (added.key is not None and self.keys.get(added.key) != added.token_id)
            or (
                added.status is not SessionStatus.OPEN
                and (added.status, added.account_id) != (session.status, session.account_id)
            )
            or (added.is_removed and added.account_id in active)
        )


def records_of(url: str) -> Records:
    """Read the records from the database, without the repositories."""
    sessions = [StoredSession(*row) for row in _rows(url, "card_sessions", StoredSession._fields)]
    accounts = _rows(url, "payment_accounts", StoredAccount._fields)
    deliveries = _rows(url, "event_deliveries", StoredDelivery._fields)
    return Records(
        sessions={each.token_id: each for each in sessions},
        keys=dict(_rows(url, "idempotency_keys", ("key", "token_id"))),
        accounts=[StoredAccount(*row) for row in accounts],
        deliveries={row[0]: StoredDelivery(*row) for row in deliveries},
    )


def _rows(url: str, table: str, columns: Sequence[str]) -> list[tuple[Any, ...]]:  # text or None
    """Return rows with all values as text. In SQLite, UUIDs are text in any case."""
    as_text = ", ".join(f"CAST({column} AS text)" for column in columns)
    statement = f"SELECT {as_text} FROM {table}"
    if not url.startswith("sqlite:"):
        return execute(url, statement)
    with closing(connect(Path(url.removeprefix("sqlite:///")), busy_timeout_seconds=5)) as db:
        return db.execute(statement).fetchall()


@dataclass(kw_only=True)
class Aftermath:
    """The faults that are found after all due work was done. Every list must be empty.

    - `lost`: add-cards whose session is missing, or differs from what the client read.
    - `unasked`: sessions that no client knows, such as a second one under the same key.
    - `unsettled`: sessions in a wrong state for the card that was typed, or for no card.
    - `doubled`: cards that are on file twice, as guest and last four digits.
    - `missing`: typed cards that are not on file, and removed cards that are still on file.
    - `stray`: tokens that only the PSP has, or only an account.
    - `endless`: sessions that are still open after their end.
    - `without_one_default`: guests and centers with cards, and no default card or several.
    """

    lost: Sequence[Added] = ()
    unasked: Sequence[str] = ()
    unsettled: Sequence[CardSession] = ()
    doubled: Sequence[tuple[str, str]] = ()
    missing: Collection[tuple[str, str]] = ()
    stray: Collection[str] = ()
    endless: Sequence[StoredSession] = ()
    without_one_default: Sequence[tuple[str, str]] = ()


def look_at(machines: Machines, *parts: Clients) -> Aftermath:
    """Reconcile everything, and compare what is stored with what clients read.

    The machines must have stopped.
    """
    installation = machines.installation
    added = [each for clients in parts for each in clients.added]
    given_up = [each for clients in parts for each in clients.given_up]
    _reconcile_at(installation, datetime.now(UTC) + BEYOND_LEASES)
    records = records_of(machines.url)
    lost = records.lost(added)
    sessions = [(each, installation.session(each.token_id)) for each in added if each not in lost]
    accounts = [
        account
        for guest_id in {each.guest_id for each in added}
        for account in installation.accounts(guest_id)
    ]
    typed = {(each.guest_id, each.card[-4:]) for each in added if each.card and not each.is_removed}
    on_file = Counter((account.guest_id, account.last_four) for account in accounts)
    first = {account.token_id for account in accounts}

    def is_settled(each: Added, session: CardSession) -> bool:
        if not each.card:
            return session.status is SessionStatus.OPEN
        if session.status is SessionStatus.COMPLETED and session.account_id:
            account = installation.account(session.account_id)
            found = (account.guest_id, account.last_four, account.removed_at is not None)
            return found == (each.guest_id, each.card[-4:], each.is_removed)
        return (
            session.failure is not None
            and session.failure.message == PaymentMethodAlreadyExists.message
            and session.token_id not in first
        )

    unsettled = [session for each, session in sessions if not is_settled(each, session)]
    stray: set[str] = {account.token for account in accounts} ^ installation.tokens_at_psp()
    _reconcile_at(installation, datetime.now(UTC) + BEYOND_ALL)
    at_last = records_of(machines.url).sessions.values()
    return Aftermath(
        lost=tuple(lost),
        unasked=tuple(records.unasked(added, given_up)),
        unsettled=tuple(unsettled),
        doubled=tuple(card for card, times in on_file.items() if times > 1),
        missing=tuple(typed ^ on_file.keys()),
        stray=tuple(stray),
        endless=tuple(each for each in at_last if each.status == SessionStatus.OPEN),
        without_one_default=tuple(records.without_one_default()),
    )


def _reconcile_at(installation: Installation, now: datetime) -> None:
    installation.clock.advance(now - installation.clock.now())
    installation.reconcile()
