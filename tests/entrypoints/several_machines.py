"""Three machines on one PostgreSQL, clients that keep them busy, and what may happen meanwhile.

`python -m tests.entrypoints.several_machines` prints the figures: what became of each request, what
was lost or doubled (nothing), and how long requests take while PostgreSQL is away. It takes about a
minute and a half.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from statistics import median
from threading import Event
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

import click

from domain.card_sessions import CardSession, SessionStatus
from domain.errors import PaymentMethodAlreadyExists
from domain.identifiers import GuestId, TokenId
from tests.adapters.http.api import GOOD_BODY
from tests.adapters.postgresql.by_hand import cut_off, execute
from tests.builders import a_guest, a_uuid
from tests.concurrency import at_once
from tests.installation import GOOD_CARD, OTHER_GOOD_CARD, REDIRECT_URI, Installation
from tests.postgresql import PostgresqlServer, new_database, own_server
from tests.programs import DEADLINE_SECONDS, SERVE, Program, free_port
from tests.waiting import wait_until

MACHINES: Final = 3
CLIENTS: Final = 8
HAMMERING: Final = 24
CUTS: Final = 10
# Few enough that clients meet at a guest, and that most cards are there already.
GUESTS: Final = [GuestId(a_uuid(1_000 + number)) for number in range(40)]
LOST_ANSWERS: Final = 0.1
"""How many first answers to add-card do not reach the client, which asks another machine then."""
PAUSES_SECONDS: Final = (0.05, 0.1, 0.2, *[0.4] * 60)
"""How long a client waits before it sends a request again; then it gives up."""

BEYOND_LEASES: Final = timedelta(minutes=5)
"""By then all that a process took and did not finish is due again, and no page has ended."""

FAULTS: Final = {"internal_error", "reconciler_fault", "reconciling_one_failed"}
"""Events in the log that tell of a fault of ours."""


# What may happen to the server.


@contextmanager
def stopped(server: PostgresqlServer) -> Iterator[None]:
    """Have the server shut down, and start again at the end."""
    server.stop(signal.SIGINT)
    try:
        yield
    finally:
        server.start()


@contextmanager
def crashed(server: PostgresqlServer) -> Iterator[None]:
    """Have all of the server end without warning, and recover at the end."""
    with _standing_still(server) as processes:
        for process in processes:
            _tell(process, signal.SIGKILL)
        server.stop(signal.SIGKILL)
        wait_until(lambda: {_state_and_parent(process)[0] for process in processes} <= {"", "Z"})
    try:
        yield
    finally:
        server.start()


@contextmanager
def hanging(server: PostgresqlServer) -> Iterator[None]:
    """Have the server hold connections, take new ones, and say nothing, until the end."""
    with _standing_still(server):
        yield


@contextmanager
def _standing_still(server: PostgresqlServer) -> Iterator[Sequence[Path]]:
    """Stop all processes of the server for a while; gives them as they are under /proc."""
    assert server.process is not None
    parent = Path("/proc", str(server.process.pid))
    stopped = [parent]
    try:
        _tell(parent, signal.SIGSTOP)
        # It may be making a process of its own just now; once it stands still it makes no more.
        wait_until(lambda: _state_and_parent(parent)[0] == "T")
        for process in Path("/proc").glob("[0-9]*"):
            if _state_and_parent(process)[1] == parent.name:
                _tell(process, signal.SIGSTOP)
                stopped.append(process)
        yield stopped
    finally:
        for process in reversed(stopped):
            _tell(process, signal.SIGCONT)


def _tell(process: Path, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(int(process.name), number)


def _state_and_parent(process: Path) -> tuple[str, str]:
    try:
        # The name comes before them, and may hold anything.
        state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    return state, parent


OUTAGES: Final[Mapping[str, Callable[[PostgresqlServer], AbstractContextManager[None]]]] = {
    "stopped": stopped,
    "crashed": crashed,
    "hanging": hanging,
}


# The machines.


class Machine:
    """`cardonfile serve` as on a machine of its own, which may lose its power and come back."""

    def __init__(self, folder: Path, port: int, environment: Mapping[str, str]) -> None:
        self.port = port
        self._folder = folder
        self._environment = environment
        self._programs: list[Program] = []
        self._stack = ExitStack()

    def start(self) -> None:
        """Start it; it answers some time later."""
        folder = self._folder / f"{self.port}-{len(self._programs)}"
        folder.mkdir()
        program = Program(folder, SERVE, "serve", "--port", str(self.port), **self._environment)
        self._programs.append(self._stack.enter_context(program))

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
                return connection.getresponse().status
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

    def __init__(self, folder: Path, url: str) -> None:
        ports = [free_port() for _ in range(MACHINES)]
        # Any, because they are keywords too. Clients balance for themselves: the host is not used.
        environment: dict[str, Any] = {
            "CARDONFILE_DATABASE_URL": url,
            "CARDONFILE_FAKE_PSP_DATABASE": str(folder / "fake-psp.db"),
            "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{ports[0]}",
            "CARDONFILE_LOG_FORMAT": "json",
        }
        self.url = url
        self.installation = Installation(
            folder, base_url=environment["CARDONFILE_PUBLIC_BASE_URL"], **environment
        )
        clock = self.installation.clock
        clock.advance(datetime.now(UTC) - clock.now())
        for guest_id in GUESTS:
            self.installation.has_guest(a_guest(id=guest_id))
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


@contextmanager
def three_machines(folder: Path, server: PostgresqlServer) -> Iterator[Machines]:
    """Lend machines that run, on a new database."""
    with new_database(server.url) as url, closing(Machines(folder, url)) as machines:
        machines.start()
        yield machines


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
    """A session that a client got an answer for.

    `card` is the number that the guest has typed, `status` the last that the client was told.
    """

    guest_id: GuestId
    key: str
    token_id: TokenId
    card: str = ""
    status: SessionStatus = SessionStatus.OPEN


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
    """Somebody who adds cards, on a connection to each machine that stays open."""

    def __init__(self, machines: Machines, name: str) -> None:
        self.fates = [Fates() for _ in machines.each]
        self.added: list[Added] = []
        self.unexpected: list[str] = []
        self._keys = (f"{name}-{number}" for number in count(1))
        self._random = random.Random(name)
        self._token = {"Authorization": f"bearer {machines.token}"}
        self._connections = [machine.connect() for machine in machines.each]
        self._turn = self._random.randrange(MACHINES)

    def close(self) -> None:
        """Close the connections."""
        for connection in self._connections:
            connection.close()

    def add_cards_until(self, enough: Callable[[], bool]) -> None:
        """Add one card after the other; every second guest types it."""
        while not enough():
            try:
                added, link = self._add_card()
                if len(self.added) % 2:
                    self._type_card(added, link)
                self._look_at(added)
            except Unexpected as unexpected:
                self.unexpected.append(str(unexpected))

    def try_to_add_card(self, machine: int) -> int:
        """Ask one machine for a link, once; give the status, 0 when the connection is cut off."""
        guest_id, key = self._random.choice(GUESTS), next(self._keys)
        answer = self._send(machine, self._adding(guest_id, key))
        if answer is not None and answer.status == 200:
            self._keep(guest_id, key, answer)
        return answer.status if answer else 0

    def _add_card(self) -> tuple[Added, str]:
        guest_id, key = self._random.choice(GUESTS), next(self._keys)
        request = self._adding(guest_id, key)
        if self._random.random() < LOST_ANSWERS:
            self._send(self._turn % MACHINES, request, hangs_up=True)
        answer = self._ask(request, expected=200)
        return self._keep(guest_id, key, answer), json.loads(answer.text)["hosted_payment_uri"]

    def _adding(self, guest_id: GuestId, key: str) -> Request:
        headers = {"Content-Type": "application/json", "Idempotency-Key": key, **self._token}
        return Request("POST", _accounts(guest_id), headers, json.dumps(GOOD_BODY))

    def _keep(self, guest_id: GuestId, key: str, answer: Answer) -> Added:
        token_id = TokenId(json.loads(answer.text)["token_id"])
        self.added.append(Added(guest_id=guest_id, key=key, token_id=token_id))
        return self.added[-1]

    def _type_card(self, added: Added, link: str) -> None:
        page = self._ask(Request("GET", link, {}), expected=303).location
        shown = self._ask(Request("GET", page, {}), expected=200).text
        token = re.search(r'name="form_token" value="(\w+)"', shown)
        assert token is not None
        number = self._random.choice([GOOD_CARD, OTHER_GOOD_CARD])
        expiry = self._random.choice(["08 / 40", "09 / 41"])
        typed = {"form_token": token[1], "number": number, "expiry": expiry, "cvc": "123"}
        form = {"Content-Type": "application/x-www-form-urlencoded"}
        way_back = self._ask(Request("POST", page, form, urlencode(typed)), expected=303).location
        added.card = number
        shop = self._ask(Request("GET", way_back, {}), expected=303).location
        if shop != REDIRECT_URI:
            raise Unexpected(f"the guest was sent to {shop}")

    def _look_at(self, added: Added) -> None:
        accounts = _accounts(added.guest_id)
        session = Request("GET", f"{accounts}/sessions/{added.token_id}", self._token)
        added.status = SessionStatus(json.loads(self._ask(session, expected=200).text)["status"])
        self._ask(Request("GET", accounts, self._token), expected=200)

    def _ask(self, request: Request, *, expected: int) -> Answer:
        """Send a request to one machine after the other until it is answered."""
        for seconds in PAUSES_SECONDS:
            self._turn += 1
            answer = self._send(self._turn % MACHINES, request)
            if answer is not None and answer.status != 503:
                if answer.status != expected:
                    raise Unexpected(f"{request.method} {request.address}: {answer}")
                return answer
            time.sleep(seconds)
        raise Unexpected(f"{request.method} {request.address}: never answered")

    def _send(self, machine: int, request: Request, *, hangs_up: bool = False) -> Answer | None:
        """Send a request once; gives None when the connection is cut off before the answer."""
        connection, fates = self._connections[machine], self.fates[machine]
        path = urlsplit(request.address)._replace(scheme="", netloc="").geturl()
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


def _accounts(guest_id: GuestId) -> str:
    return f"/api/v1/guests/{guest_id}/accounts"


class Clients:
    """All clients, and what became of what they sent."""

    def __init__(self, machines: Machines, name: str, clients: int) -> None:
        self.each = [Client(machines, f"{name}-{number}") for number in range(clients)]

    @property
    def fates(self) -> Fates:
        """What became of all requests so far."""
        return sum((fates for client in self.each for fates in client.fates), Fates())

    @property
    def added(self) -> list[Added]:
        """The cards that were answered for."""
        return [added for client in self.each for added in client.added]

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


# What is done, and what has come of it.


def live_through(
    machines: Machines,
    server: PostgresqlServer,
    outage: Callable[[PostgresqlServer], AbstractContextManager[None]],
    *,
    answers: int,
) -> Clients:
    """Have clients add cards while a machine is killed, connections are cut, PostgreSQL is away.

    `answers` is how many requests are answered before what comes next; the outage lasts until as
    many are refused as there are clients. Gives the clients once they have stopped.
    """
    clients, stop = Clients(machines, "load", CLIENTS), Event()
    killed = machines.each[0]

    def go_on(fates: Callable[[], int], more: int = answers) -> None:
        before = fates()
        wait_until(lambda: fates() >= before + more, seconds=DEADLINE_SECONDS)

    with (
        closing(clients),
        clients.doing(lambda client: client.add_cards_until(stop.is_set), stop),
    ):
        go_on(lambda: clients.fates.answered)
        killed.kill()
        go_on(lambda: clients.fates.answered)
        killed.start()
        killed.wait_until_ready()
        go_on(lambda: clients.answered_by(0))
        for _ in range(CUTS):
            cut_off(machines.url)
            go_on(lambda: clients.fates.answered, answers // CUTS)
        with outage(server):
            go_on(lambda: clients.fates.refused, CLIENTS)
        machines.wait_until_ready()
        go_on(lambda: clients.fates.answered)
    return clients


def ask_all(machines: Machines, name: str) -> Clients:
    """Have each of many clients ask each machine some times, and no request be repeated."""
    clients = Clients(machines, name, 2 * CLIENTS)

    def ask(number: int) -> None:
        for turn in range(3 * MACHINES):
            clients.each[number].try_to_add_card((number + turn) % MACHINES)

    with closing(clients):
        at_once(len(clients.each), ask)
    return clients


@dataclass(kw_only=True)
class Aftermath:
    """What must not be found once everything has come to rest.

    `lost`: sessions that are not there, or not as a client was told. `unasked`: sessions that no
    client got an answer for, such as a second one under the same key. `unsettled`: sessions that
    have not come to the end that a typed card, or none, leads to. `doubled` and `missing`: cards,
    by guest, that are on file more than once, or not although they were typed. `stray`: tokens at
    the PSP that nobody keeps, and tokens that we keep and the PSP does not know.
    """

    lost: list[Added] = field(default_factory=list)
    unasked: set[str] = field(default_factory=set)
    unsettled: list[CardSession] = field(default_factory=list)
    doubled: list[tuple[str, str]] = field(default_factory=list)
    missing: set[tuple[str, str]] = field(default_factory=set)
    stray: set[str] = field(default_factory=set)


def look_at(machines: Machines, added: Sequence[Added]) -> Aftermath:
    """Have the reconciler come to rest, and hold what is stored against what clients were told.

    The machines must have stopped.
    """
    installation = machines.installation
    installation.clock.advance(BEYOND_LEASES)
    installation.reconcile_until_idle()
    token_ids = [
        row[0] for row in execute(machines.url, "SELECT token_id::text FROM card_sessions")
    ]
    keys = dict(execute(machines.url, "SELECT key, token_id::text FROM idempotency_keys"))
    sessions = {token_id: installation.session(token_id) for token_id in token_ids}
    accounts = [account for guest_id in GUESTS for account in installation.accounts(guest_id)]

    typed = {(each.guest_id, each.card[-4:]) for each in added if each.card}
    on_file = Counter((account.guest_id, account.last_four) for account in accounts)
    first = {account.token_id: account for account in accounts}
    by_id = {account.account_id: account for account in accounts}

    def is_lost(each: Added) -> bool:
        session = sessions.get(each.token_id)
        return (
            session is None
            or session.guest_id != each.guest_id
            or keys.get(each.key) != each.token_id
            or each.status not in (SessionStatus.OPEN, session.status)
        )

    def is_settled(each: Added, session: CardSession) -> bool:
        if not each.card:
            return session.status is SessionStatus.OPEN
        if session.status is SessionStatus.COMPLETED and session.account_id in by_id:
            account = by_id[session.account_id]
            return (account.guest_id, account.last_four) == (each.guest_id, each.card[-4:])
        return (
            session.failure is not None
            and session.failure.message == PaymentMethodAlreadyExists.message
            and session.token_id not in first
        )

    lost = [each for each in added if is_lost(each)]
    return Aftermath(
        lost=lost,
        unasked=sessions.keys() - {each.token_id for each in added},
        unsettled=[
            sessions[each.token_id]
            for each in added
            if each not in lost and not is_settled(each, sessions[each.token_id])
        ],
        doubled=[card for card, times in on_file.items() if times > 1],
        missing=typed ^ on_file.keys(),
        stray={account.token for account in accounts} ^ installation.tokens_at_psp(),
    )


# How long requests take while PostgreSQL is away.


@dataclass(kw_only=True)
class Timed:
    """A request: its status, when it was sent, and how long its answer took."""

    status: int
    sent_at: float
    seconds: float


@dataclass(kw_only=True)
class Watched:
    """What one machine answers while PostgreSQL is away, and many clients want to add cards.

    `caught` are requests that were under way when it began.
    """

    adding: list[Timed]
    caught: list[Timed]
    healthz: list[Timed]
    readyz: Timed


def watch(
    machines: Machines,
    server: PostgresqlServer,
    outage: Callable[[PostgresqlServer], AbstractContextManager[None]],
    *,
    enough: Callable[[int, float], bool],
) -> Watched:
    """Have many clients hammer one machine, and PostgreSQL be away until it is enough.

    `enough` is asked with the number of 503s and the seconds so far.
    """
    clients, stop = Clients(machines, "hammer", HAMMERING), Event()
    machine, adding = machines.each[0], list[Timed]()

    def hammer(client: Client) -> None:
        while not stop.is_set():
            adding.append(_timed(lambda: client.try_to_add_card(0)))

    with closing(clients), clients.doing(hammer, stop):
        wait_until(lambda: clients.answered_by(0) >= HAMMERING)
        with outage(server):
            began_at, healthz = time.monotonic(), list[Timed]()
            while not enough(clients.fates.refused, time.monotonic() - began_at):
                healthz.append(_timed(lambda: machine.status("/healthz")))
            readyz = _timed(lambda: machine.status("/readyz"))
            ended_at = time.monotonic()
        machines.wait_until_ready()
    over = [each for each in adding if began_at < each.sent_at + each.seconds < ended_at]
    return Watched(
        adding=[each for each in over if each.sent_at >= began_at],
        caught=[each for each in over if each.sent_at < began_at],
        healthz=healthz,
        readyz=readyz,
    )


def _timed(ask: Callable[[], int]) -> Timed:
    sent_at = time.monotonic()
    return Timed(status=ask(), sent_at=sent_at, seconds=time.monotonic() - sent_at)


# The figures.


def main() -> None:
    """Print what has come of it all."""
    with own_server() as server:
        for name, outage in OUTAGES.items():
            with tempfile.TemporaryDirectory() as folder:
                _print_load(name, outage, Path(folder), server)
        for name, outage in OUTAGES.items():
            with tempfile.TemporaryDirectory() as folder:
                _print_outage(name, outage, Path(folder), server)


def _print_load(
    name: str,
    outage: Callable[[PostgresqlServer], AbstractContextManager[None]],
    folder: Path,
    server: PostgresqlServer,
) -> None:
    with three_machines(folder, server) as machines:
        load = live_through(machines, server, outage, answers=1_000)
        after = ask_all(machines, "after")
        statuses = [machine.stop() for machine in machines.each]
        found = look_at(machines, load.added + after.added)
        faults = [line for machine in machines.each for line in machine.faults()]
    fates, later = load.fates, after.fates
    click.echo(
        f"""
{MACHINES} machines, {CLIENTS} clients; one machine killed, then PostgreSQL {name}
  requests sent            {fates.sent:6}
  answered                 {fates.answered:6}
  refused with 503         {fates.refused:6}
  cut off                  {fates.cut_off:6}
  anything else            {len(load.unexpected):6}
  sent afterwards          {later.sent:6}, of which refused {later.refused}, cut off {later.cut_off}
  sessions answered for    {len(load.added + after.added):6}
  cards typed              {sum(bool(each.card) for each in load.added):6}
  lost                     {len(found.lost):6}
  made twice               {len(found.unasked):6}
  not settled              {len(found.unsettled):6}
  accounts twice / missing {len(found.doubled):6} / {len(found.missing)}
  tokens astray            {len(found.stray):6}
  faults in the logs       {len(faults):6}
  exit statuses            {statuses}"""
    )


def _print_outage(
    name: str,
    outage: Callable[[PostgresqlServer], AbstractContextManager[None]],
    folder: Path,
    server: PostgresqlServer,
) -> None:
    with three_machines(folder, server) as machines:
        watched = watch(machines, server, outage, enough=lambda _, seconds: seconds > 8)
    click.echo(f"\n{HAMMERING} clients hammer one machine for 8 s, PostgreSQL {name}")
    _print_times("healthz", watched.healthz)
    _print_times("add-card", watched.adding)
    _print_times("add-card, under way", watched.caught)
    _print_times("readyz", [watched.readyz])


def _print_times(name: str, timed: Sequence[Timed]) -> None:
    for status in sorted({each.status for each in timed}):
        seconds = sorted(each.seconds for each in timed if each.status == status)
        click.echo(
            f"  {name:20} {status:4} {len(seconds):6} times   "
            f"median {median(seconds) * 1000:6.1f} ms   longest {seconds[-1]:6.3f} s"
        )


if __name__ == "__main__":
    main()
