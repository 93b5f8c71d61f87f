"""Machines that serve, clients that keep them busy, and what remains of it once all has come to rest."""

from __future__ import annotations

import http.client
import json
import random
import re
import signal
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

from adapters.psp.contract.samples import a_uuid
from adapters.sqlite.connection import connect
from domain.card_sessions import CardSession, SessionStatus
from domain.errors import PaymentMethodAlreadyExists
from domain.identifiers import AccountId, GuestId, TokenId
from domain.pagination import PageRequest
from tests.adapters.http.api import GOOD_BODY
from tests.adapters.postgresql.by_hand import execute
from tests.builders import a_guest
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, REDIRECT_URI, Installation
from tests.programs import DEADLINE_SECONDS, SERVE, Program, free_port
from tests.waiting import wait_until

CLIENTS: Final = 8
# Few enough that clients meet at a guest, and that most cards are there already.
GUESTS: Final = [GuestId(a_uuid(1_000 + number)) for number in range(40)]
LOST_ANSWERS: Final = 0.1
"""How many first answers to add-card do not reach the client, which asks another machine then."""
WITHOUT_KEY: Final = 0.2
"""How many add-cards have no Idempotency-Key, and so are not sent again."""
REMOVED: Final = 0.2
"""How many cards are added for one of the client's own guests, and removed again."""
PAUSES_SECONDS: Final = (0.05, 0.1, 0.2, *[0.4] * 60)
"""How long a client waits before it sends a request again; then it gives up."""

BEYOND_LEASES: Final = timedelta(minutes=5)
"""By then all that a process took and did not finish is due again, and no page has ended."""
BEYOND_ALL: Final = timedelta(days=1)
"""By then no page is open any more."""

FAULTS: Final = {"internal_error", "reconciler_fault", "reconciling_one_failed"}
"""Events in the log that tell of a fault of ours."""


# The machines.


class Machine:
    """`cardonfile serve` as on a machine of its own, which may lose its power and come back."""

    def __init__(self, folder: Path, port: int, environment: Mapping[str, str]) -> None:
        self.port = port
        self._folder = folder
        self._environment = environment
        self._programs: list[Program] = []
        self._stack = ExitStack()

    def start(self, source: str = SERVE) -> Program:
        """Start it; it answers some time later."""
        folder = self._folder / f"{self.port}-{len(self._programs)}"
        folder.mkdir()
        program = Program(folder, source, "serve", "--port", str(self.port), **self._environment)
        self._programs.append(self._stack.enter_context(program))
        return program

    def kill(self) -> None:
        """End it without warning."""
        self._programs[-1].tell(signal.SIGKILL)
        assert self._programs[-1].ends() == -signal.SIGKILL

    def stop(self) -> int:
        """Have it finish; give its exit status."""
        self._programs[-1].tell(signal.SIGTERM)
        return self._programs[-1].ends()

    def close(self) -> None:
        """Leave nothing of it."""
        self._stack.close()

    def connect(self) -> http.client.HTTPConnection:
        """Give a connection that is not open yet."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)

    def status(self, path: str) -> int:
        """Ask for a page on a connection of its own; 0 when nobody listens."""
        with closing(self.connect()) as connection:
            try:
                connection.request("GET", path)
                answer = connection.getresponse()
                answer.read()
                return answer.status
            except ConnectionError:
                return 0

    def wait_until_ready(self) -> None:
        """Wait until it can do its work."""
        wait_until(lambda: self.status("/readyz") == 200, seconds=DEADLINE_SECONDS)

    def faults(self) -> list[dict[str, Any]]:
        """Give the lines of its log that tell of a fault of ours."""
        lines = [line for program in self._programs for line in program.lines()]
        return [line for line in lines if line["event"] in FAULTS]


class Machines:
    """Machines on one database, with the file of the fake PSP, and a look into both."""

    def __init__(self, folder: Path, url: str, *, machines: int) -> None:
        """Take an address of a migrated database, or of the file `cards.db` that is to be made."""
        ports = [free_port() for _ in range(machines)]
        # Any, because they are keywords too. Clients balance for themselves: the host is not used.
        environment: dict[str, Any] = {
            "CARDONFILE_DATABASE_URL": url,
            "CARDONFILE_FAKE_PSP_DATABASE": str(folder / "fake-psp.db"),
            "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{ports[0]}",
            "CARDONFILE_LOG_FORMAT": "json",
        }
        self.url = url
        self.psp_database = folder / "fake-psp.db"
        self.installation = Installation(
            folder, base_url=environment["CARDONFILE_PUBLIC_BASE_URL"], **environment
        )
        clock = self.installation.clock
        clock.advance(datetime.now(UTC) - clock.now())
        guest_ids = [*GUESTS, *(each for number in range(CLIENTS) for each in own_guests(number))]
        with self.installation.storage.write() as unit:
            unit.guests.put_many([a_guest(id=guest_id) for guest_id in guest_ids])
            unit.commit()
        self.token = self.installation.token_for(self.installation.caller)
        # The server may go away from now on.
        self.installation.close()
        self.each = [Machine(folder, port, environment) for port in ports]

    def start(self) -> None:
        """Start them all, and wait until they are ready."""
        for machine in self.each:
            machine.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until all can do their work."""
        for machine in self.each:
            machine.wait_until_ready()

    def close(self) -> None:
        """Leave nothing of them."""
        for machine in self.each:
            machine.close()
        self.installation.close()


def one_machine_on_sqlite(folder: Path) -> Machines:
    """Give a machine that is not started, with an SQLite file."""
    return Machines(folder, f"sqlite:///{folder / 'cards.db'}", machines=1)


# The clients.


@dataclass(kw_only=True)
class Fates:
    """What became of requests: each that was sent was answered, refused with 503, or cut off."""

    sent: int = 0
    answered: int = 0
    refused: int = 0
    cut_off: int = 0

    def __add__(self, other: Fates) -> Fates:
        return Fates(
            sent=self.sent + other.sent,
            answered=self.answered + other.answered,
            refused=self.refused + other.refused,
            cut_off=self.cut_off + other.cut_off,
        )


@dataclass(kw_only=True)
class Added:
    """An add-card of a client, its answer once there is one, and what became of the session.

    `redirect_uri` is of no other add-card. `card` is the number that the guest has typed; `state`
    and what comes before it is what the client was told last.
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
    """A request to whichever machine."""

    method: str
    address: str
    headers: Mapping[str, str]
    body: str | None = None


class Answer(NamedTuple):
    """What a client looks at in an answer."""

    status: int
    location: str
    text: str


class Unexpected(Exception):
    """An answer that no client should ever get, or none after many tries."""


class Client:
    """Somebody who adds and removes cards, on a connection to each machine that stays open."""

    def __init__(self, machines: Machines, name: str, number: int) -> None:
        self.fates = [Fates() for _ in machines.each]
        self.added: list[Added] = []
        self.given_up: list[Added] = []
        self.unexpected: list[str] = []
        self._names = (f"{name}-{number}-{each}" for each in count(1))
        self._own_guests = own_guests(number)
        self._random = random.Random(f"{name}-{number}")
        self._token = {"Authorization": f"bearer {machines.token}"}
        self._connections = [machine.connect() for machine in machines.each]
        self._turn = self._random.randrange(len(machines.each))

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    def add_cards_until(self, enough: Callable[[], bool]) -> None:
        """Add one card after the other; every second guest types it, and some are removed."""
        while not enough():
            try:
                if self._own_guests and self._random.random() < REMOVED:
                    self._add_and_remove_card(self._own_guests[-1])
                elif added := self._add_card(self._random.choice(GUESTS)):
                    if len(self.added) % 2:
                        self._type_card(added, comes_back=self._random.random() < 0.7)
                    self.look_at(added)
            except Unexpected as unexpected:
                self.unexpected.append(str(unexpected))

    def try_to_add_card(self, machine: int) -> int:
        """Ask one machine for a link, once; give the status, 0 when the connection is cut off."""
        adding = self._an_add_card(self._random.choice(GUESTS), has_key=True)
        answer = self._send(machine, self._request_of(adding))
        if answer is not None and answer.status == 200:
            self._keep(adding, answer)
        return answer.status if answer else 0

    def ask_again(self, added: Added) -> None:
        """Ask again for what was answered; everything must be as the client was told."""
        try:
            if added.key and self._ask(self._request_of(added), 200).text != added.answer:
                raise Unexpected(f"another session under the same key: {added}")
            self.look_at(added)
            if added.is_removed:
                self._ask(Request("GET", _account(added), self._token), 404)
        except Unexpected as unexpected:
            self.unexpected.append(str(unexpected))

    def look_at(self, added: Added) -> None:
        """Read the session; once it has ended it never changes."""
        path = f"{_accounts(added.guest_id)}/sessions/{added.token_id}"
        text = self._ask(Request("GET", path, self._token), 200).text
        if added.status is not SessionStatus.OPEN and text != added.state:
            raise Unexpected(f"{added} became {text}")
        told = json.loads(text)
        added.status, added.account_id = SessionStatus(told["status"]), told["account_id"]
        added.state = text
        self._ask(Request("GET", _accounts(added.guest_id), self._token), 200)

    def _add_card(self, guest_id: GuestId) -> Added | None:
        """Add a card; gives None when the request had no key, and no answer either."""
        adding = self._an_add_card(guest_id, has_key=self._random.random() >= WITHOUT_KEY)
        request = self._request_of(adding)
        if adding.key is None:
            self._turn += 1
            first = self._send(self._turn, request)
            if first is None or first.status == 503:
                self.given_up.append(adding)
                return None
            return self._keep(adding, _expected(request, first, 200))
        if self._random.random() < LOST_ANSWERS:
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
        shown = self._ask(Request("GET", page, {}), 200).text
        token = re.search(r'name="form_token" value="(\w+)"', shown)
        assert token is not None
        number = self._random.choice([GOOD_CARD, OTHER_GOOD_CARD])
        expiry = self._random.choice(["08 / 40", "09 / 41"])
        typed = {"form_token": token[1], "number": number, "expiry": expiry, "cvc": "123"}
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        way_back = self._ask(Request("POST", page, form, urlencode(typed)), 303).location
        added.card = number
        if comes_back:
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
            # Nothing could be written when the guest came back. Its card will come, and stay.
            self._own_guests.pop()
            return
        if added.status is not SessionStatus.COMPLETED:
            raise Unexpected(f"the card is not on file: {added}")
        # An earlier try, of which the answer was cut off, may have removed it.
        self._ask(Request("DELETE", _account(added), self._token), 200, 404)
        added.is_removed = True

    def _ask(self, request: Request, *expected: int) -> Answer:
        """Send a request to one machine after the other until it is answered."""
        for seconds in PAUSES_SECONDS:
            self._turn += 1
            answer = self._send(self._turn, request)
            if answer is not None and answer.status != 503:
                return _expected(request, answer, *expected)
            time.sleep(seconds)
        raise Unexpected(f"{request.method} {request.address}: never answered")

    def _send(self, turn: int, request: Request, *, hangs_up: bool = False) -> Answer | None:
        """Send a request once; gives None when the connection is cut off before the answer."""
        machine = turn % len(self._connections)
        connection, fates = self._connections[machine], self.fates[machine]
        path = urlsplit(request.address)._replace(scheme="", netloc="").geturl()
        try:
            if connection.sock is None:
                connection.connect()
        except ConnectionError:
            return None
        fates.sent += 1
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
            fates.cut_off += 1
            return None
        if response.status == 503:
            fates.refused += 1
        else:
            fates.answered += 1
        return Answer(response.status, response.getheader("Location", ""), text)


def own_guests(number: int) -> list[GuestId]:
    """Give the guests whose cards only the client with this number adds and removes."""
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
    """All clients, and what became of what they sent."""

    def __init__(self, machines: Machines, name: str, clients: int) -> None:
        self.each = [Client(machines, name, number) for number in range(clients)]

    @property
    def fates(self) -> Fates:
        """What became of all requests so far."""
        return sum((fates for client in self.each for fates in client.fates), Fates())

    @property
    def added(self) -> list[Added]:
        """The cards that were answered for."""
        return [added for client in self.each for added in client.added]

    @property
    def given_up(self) -> list[Added]:
        """The add-cards without an answer that were not sent again."""
        return [added for client in self.each for added in client.given_up]

    @property
    def unexpected(self) -> list[str]:
        """What no client should ever see."""
        return [each for client in self.each for each in client.unexpected]

    def answered_by(self, machine: int) -> int:
        """How many requests a machine has answered."""
        return sum(client.fates[machine].answered for client in self.each)

    def close(self) -> None:
        """Close the connections."""
        for client in self.each:
            client.close()

    @contextmanager
    def doing(self, work: Callable[[Client], object], stop: Event) -> Iterator[None]:
        """Have each do its work, until the block is over and they stop."""
        with ThreadPoolExecutor(len(self.each)) as pool:
            running = [pool.submit(work, client) for client in self.each]
            try:
                yield
            finally:
                stop.set()
        for each in running:
            each.result()


# What has come of it.


class StoredSession(NamedTuple):
    """What a row tells of a session."""

    token_id: str
    guest_id: str
    redirect_uri: str
    status: str
    account_id: str | None


@dataclass(frozen=True, kw_only=True)
class Records:
    """What is stored: sessions and keys by what they are asked for with, and active accounts."""

    sessions: Mapping[str, StoredSession]
    keys: Mapping[str, str]
    active: Collection[str]

    def lost(self, added: Sequence[Added]) -> list[Added]:
        """Give what is not there, or not as the client was told."""
        return [each for each in added if self._is_lost(each)]

    def unasked(self, added: Sequence[Added], given_up: Sequence[Added]) -> list[str]:
        """Give the `redirect_uri` of sessions that nobody got, such as a second one under a key.

        An add-card that was given up may have left one, and no more.
        """
        answered = {each.token_id for each in added}
        may_be = Counter(each.redirect_uri for each in given_up)
        others = [each for each in self.sessions.values() if each.token_id not in answered]
        return list((Counter(each.redirect_uri for each in others) - may_be).elements())

    def _is_lost(self, added: Added) -> bool:
        session = self.sessions.get(added.token_id)
        return (
            session is None
            or (session.guest_id, session.redirect_uri) != (added.guest_id, added.redirect_uri)
            or (added.key is not None and self.keys.get(added.key) != added.token_id)
            or (
                added.status is not SessionStatus.OPEN
                and (added.status, added.account_id) != (session.status, session.account_id)
            )
            or (added.is_removed and added.account_id in self.active)
        )


def records_of(url: str) -> Records:
    """Read what is stored, past the repositories."""
    # A UUID of PostgreSQL is text in SQLite, and here.
    sessions = _select(
        url,
        "SELECT CAST(token_id AS text), CAST(guest_id AS text), redirect_uri, status,"
        " CAST(account_id AS text) FROM card_sessions",
    )
    keys = _select(url, "SELECT key, CAST(token_id AS text) FROM idempotency_keys")
    active = _select(
        url, "SELECT CAST(account_id AS text) FROM payment_accounts WHERE removed_at IS NULL"
    )
    return Records(
        sessions={row[0]: StoredSession(*row) for row in sessions},
        keys=dict(keys),
        active={row[0] for row in active},
    )


def _select(url: str, statement: str) -> list[tuple[Any, ...]]:  # a column may hold anything
    if not url.startswith("sqlite:"):
        return execute(url, statement)
    with closing(connect(Path(url.removeprefix("sqlite:///")), busy_timeout_seconds=5)) as db:
        return db.execute(statement).fetchall()


@dataclass(kw_only=True)
class Aftermath:
    """What must not be found once everything has come to rest.

    `lost`: sessions that are not there, or not as a client was told. `unasked`: sessions that no
    client got an answer for, such as a second one under the same key. `unsettled`: sessions that
    have not come to the end that a typed card, or none, leads to. `doubled` and `missing`: cards,
    by guest, that are on file more than once, or not although they were typed, or that are although
    they were removed. `stray`: tokens at the PSP that nobody keeps, and tokens that we keep and the
    PSP does not know. `endless`: sessions that are open when all has long been over.
    """

    lost: list[Added] = field(default_factory=list)
    unasked: list[str] = field(default_factory=list)
    unsettled: list[CardSession] = field(default_factory=list)
    doubled: list[tuple[str, str]] = field(default_factory=list)
    missing: set[tuple[str, str]] = field(default_factory=set)
    stray: set[str] = field(default_factory=set)
    endless: list[StoredSession] = field(default_factory=list)


def look_at(machines: Machines, *parts: Clients) -> Aftermath:
    """Have the reconciler come to rest, and hold what is stored against what clients were told.

    The machines must have stopped.
    """
    installation = machines.installation
    added = [each for clients in parts for each in clients.added]
    given_up = [each for clients in parts for each in clients.given_up]
    _reconcile_at(installation, datetime.now(UTC) + BEYOND_LEASES)
    records = records_of(machines.url)
    lost = records.lost(added)
    sessions = [(each, installation.session(each.token_id)) for each in added if each not in lost]
    guests = {each.guest_id for each in added}
    with installation.storage.read() as unit:
        by_id = {
            session.account_id: unit.accounts.get(session.account_id)
            for _, session in sessions
            if session.account_id
        }
        accounts = [
            account
            for guest_id in guests
            for account in unit.accounts.page(guest_id, None, PageRequest(size=100)).items
        ]
    typed = {(each.guest_id, each.card[-4:]) for each in added if each.card and not each.is_removed}
    on_file = Counter((account.guest_id, account.last_four) for account in accounts)
    first = {account.token_id for account in accounts}

    def is_settled(each: Added, session: CardSession) -> bool:
        if not each.card:
            return session.status is SessionStatus.OPEN
        account = by_id.get(session.account_id) if session.account_id else None
        if session.status is SessionStatus.COMPLETED and account:
            return (account.guest_id, account.last_four, account.removed_at is not None) == (
                each.guest_id,
                each.card[-4:],
                each.is_removed,
            )
        return (
            session.failure is not None
            and session.failure.message == PaymentMethodAlreadyExists.message
            and session.token_id not in first
        )

    aftermath = Aftermath(
        lost=lost,
        unasked=records.unasked(added, given_up),
        unsettled=[session for each, session in sessions if not is_settled(each, session)],
        doubled=[card for card, times in on_file.items() if times > 1],
        missing=typed ^ on_file.keys(),
        stray={account.token for account in accounts} ^ installation.tokens_at_psp(),
    )
    _reconcile_at(installation, datetime.now(UTC) + BEYOND_ALL)
    for session in records_of(machines.url).sessions.values():
        if session.status == SessionStatus.OPEN:
            aftermath.endless.append(session)
    return aftermath


def _reconcile_at(installation: Installation, now: datetime) -> None:
    installation.clock.advance(now - installation.clock.now())
    while not installation.reconcile().is_idle:
        pass
