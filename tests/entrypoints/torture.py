"""Kills a service repeatedly under load, and checks what is stored.

`make torture` does it a hundred times on SQLite and on PostgreSQL, and prints the result. The seed
determines what clients do and when the kill comes. Timing decides which requests a kill hits.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from threading import Event, Lock
from typing import Final, NamedTuple

import click
import msgspec
import structlog
from standardwebhooks import Webhook, WebhookVerificationError
from typing_extensions import override

from adapters.psp_suite.concurrency import at_once
from adapters.sqlite.connection import connect
from domain.events.event import ENDPOINT_TYPES
from tests.adapters.events.receiver import read_event
from tests.entrypoints.load import (
    CLIENTS,
    Clients,
    Machines,
    Records,
    look_at,
    one_machine_on_sqlite,
    records_of,
)
from tests.entrypoints.postgresql_outages import crashed
from tests.event_receiver import EventReceiver, Received
from tests.postgresql import new_database, own_server
from tests.told_events import Told
from tests.waiting import LIMIT_SECONDS, wait_until

CRASH_EVERY: Final = 2
"""PostgreSQL crashes in every second round."""

ANSWERS: Final = (20, 150)
"""How many requests are answered between two kills."""

KILLED_AT_START: Final = 0.2
"""The share of starts during which the service is killed once more."""

FATES_OF_EVENTS: Final = (("works", "refuses", "drops", "response is lost"), (17, 1, 1, 1))
"""What the endpoint does with an event, and how often."""

MAX_WAL_BYTES: Final = 16 * 1024 * 1024
"""SQLite aims at a WAL of 4 MiB, but exceeds this size while readers delay a checkpoint."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """An installation on one of the two storages.

    `crash` crashes the database server until the end of a block. It is None if there is no server.
    `damage` returns descriptions of corrupt data.
    """

    machines: Machines
    crash: Callable[[], AbstractContextManager[None]] | None
    damage: Callable[[], list[str]]


class UnreliableEndpoint(EventReceiver):
    """An endpoint that fails at random until `is_reliable` is set.

    It refuses some events with 500, and drops some connections before or after it has accepted the
    event. `taken` counts how often each event was accepted. `unverified` contains the events that
    the library of Standard Webhooks refuses. `is_live` is whether the sender uses the real time.
    """

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.secret = ""
        self.is_reliable = False
        self.is_live = True
        self.taken = Counter[str]()
        self.failures = 0
        self.unverified: list[str] = []
        self._random = random.Random(f"{seed} endpoint")
        self._lock = Lock()

    @override
    def respond(self, request: Received) -> int | None:
        with self._lock:
            try:
                self._verify(request)
            except WebhookVerificationError as error:
                self.unverified.append(f"{request.event_id}: {error}")
            fate = "works" if self.is_reliable else self._random.choices(*FATES_OF_EVENTS)[0]
            self.failures += fate != "works"
            if fate in ("works", "response is lost"):
                self.taken[request.event_id] += 1
            return {"works": 204, "refuses": 500}.get(fate)

    def _verify(self, request: Received) -> None:
        if self.is_live:
            read_event(self.secret, request.body, dict(request.headers))
            return
        # The library knows only the real time.
        stamp = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
        signature = Webhook(self.secret).sign(request.event_id, stamp, request.body.decode())
        if signature != request.headers["webhook-signature"]:
            raise WebhookVerificationError("another signature")


class Survived(NamedTuple):
    """What happened to all requests and events, and all faults.

    Among the `events`, "under load" counts the events that arrived while the service was repeatedly
    killed. The others were delivered at the end. "delivered again" counts the events that arrived
    more than once with the same id.
    """

    fates: Counter[str]
    answered: int
    events: Counter[str]
    broken: list[str]


def survive(
    storage: Storage, *, rounds: int, seed: int, answers: tuple[int, int] = ANSWERS
) -> Survived:
    """Kill the machine once in each round at a random moment, and check what is stored.

    The kill comes after a random number of responses, which is in the range `answers`. The first
    kill also waits until an event has arrived. Clients retry unanswered requests. After each
    round, the clients pause, all responses are compared with what is stored, and the requests of
    the round are repeated. All events are sent to a real endpoint.
    """
    with UnreliableEndpoint(seed) as endpoint:
        return _survive(storage, endpoint, rounds, seed, answers)


def _survive(
    storage: Storage,
    endpoint: UnreliableEndpoint,
    rounds: int,
    seed: int,
    answers: tuple[int, int],
) -> Survived:
    machines, chance = storage.machines, random.Random(seed)
    (machine,) = machines.each
    types = [f"--type={each}" for each in ENDPOINT_TYPES]
    endpoint.secret = machine.command("events", "add", endpoint.url, *types)
    clients, broken = Clients(machines, f"seed-{seed}", CLIENTS), list[str]()

    def note(kind: str, found: Iterable[object]) -> None:
        broken.extend(f"{kind}: {each}" for each in found)

    machines.start()
    with closing(clients):
        for number in range(1, rounds + 1):
            known = {id(each) for each in clients.added}
            crashes = number % CRASH_EVERY == 0
            _kill_under_load(storage, clients, endpoint, chance, answers=answers, crashes=crashes)
            records = records_of(machines.url)
            note("damage", storage.damage())
            note("lost", records.lost(clients.added))
            note("unasked", records.unasked(clients.added, clients.given_up))
            note("without one default", records.without_one_default())
            _ask_again(clients, known)
    note("exit status", filter(None, [machine.stop()]))
    note("fault", machine.faults())
    events = find_broken(machines, clients, endpoint, note)
    return Survived(clients.fates, len(clients.added), events, broken)


def find_broken(
    machines: Machines,
    clients: Clients,
    endpoint: UnreliableEndpoint,
    note: Callable[[str, Iterable[object]], None],
) -> Counter[str]:
    """Settle and deliver everything, record each kind of fault, and count the events.

    The machines must have stopped.
    """
    note("unexpected", clients.unexpected)
    endpoint.is_reliable, endpoint.is_live = True, False
    under_load = len(endpoint.taken)
    for kind, found in vars(look_at(machines, clients)).items():
        note(kind, found)
    records = records_of(machines.url)
    lost, invented = records.events_lost_and_invented()
    decided, taken = records.deliveries, endpoint.taken.keys()
    lost_on_the_way = decided.keys() - taken
    note("event lost", [*lost, *lost_on_the_way])
    note("event invented", [*invented, *(taken - decided.keys())])
    note("event not delivered", [each for each in decided.values() if each.status != "delivered"])
    note("event that differs", _changed(endpoint, records))
    note("event not verified", endpoint.unverified)
    return Counter(
        {
            "decided": len(decided),
            "delivered": len(taken & decided.keys()),
            "under load": under_load,
            "delivered again": sum(times > 1 for times in endpoint.taken.values()),
            "failures of the endpoint": endpoint.failures,
        }
    )


def _changed(endpoint: UnreliableEndpoint, records: Records) -> list[str]:
    """Return the events whose body differs between attempts, or from what is stored."""
    bodies = dict[str, bytes]()
    changed = list[str]()
    for each in endpoint.received:
        content, stored = each.content, records.deliveries.get(each.event_id)
        if bodies.setdefault(each.event_id, each.body) != each.body or (
            stored is not None
            and msgspec.convert({**content["data"], "type": content["type"]}, Told) != stored.told
        ):
            changed.append(each.event_id)
    return changed


def _kill_under_load(
    storage: Storage,
    clients: Clients,
    endpoint: UnreliableEndpoint,
    chance: random.Random,
    *,
    answers: tuple[int, int],
    crashes: bool,
) -> None:
    (machine,), stop = storage.machines.each, Event()
    with clients.doing(lambda client: client.add_cards_until(stop.is_set), stop):
        enough = clients.fates["answered"] + chance.randrange(*answers)
        wait_until(lambda: clients.fates["answered"] >= enough and bool(endpoint.taken))
        # Without this sleep, every kill would come right after a response.
        time.sleep(chance.uniform(0, 0.02))
        with storage.crash() if storage.crash and crashes else nullcontext():
            machine.kill()
        machine.start()
        if chance.random() < KILLED_AT_START:
            time.sleep(chance.uniform(0, 0.5))
            machine.kill()
            machine.start()
        machine.wait_until_ready()


def _ask_again(clients: Clients, known: Collection[int]) -> None:
    def ask_again(number: int) -> None:
        client = clients.each[number]
        for added in client.added:
            if id(added) not in known:
                client.ask_again(added)

    at_once(len(clients.each), ask_again)


@contextmanager
def on_sqlite(folder: Path, **settings: str) -> Iterator[Storage]:
    """Provide an installation on SQLite."""
    with closing(one_machine_on_sqlite(folder, **settings)) as machines:
        files = [machines.installation.database, machines.psp_database]

        def damage() -> list[str]:
            return [f"{file.name}: {each}" for file in files for each in damage_of(file)]

        yield Storage(machines=machines, crash=None, damage=damage)


@contextmanager
def on_postgresql(folder: Path, **settings: str) -> Iterator[Storage]:
    """Provide an installation on PostgreSQL. Its fake PSP uses an SQLite file."""
    with (
        own_server() as server,
        new_database(server.url) as url,
        closing(Machines(folder, url, machines=1, **settings)) as machines,
    ):

        def damage() -> list[str]:
            return damage_of(machines.psp_database)

        yield Storage(machines=machines, crash=lambda: crashed(server), damage=damage)


def damage_of(file: Path) -> list[str]:
    """Return what SQLite's checks find in a file, and whether its WAL is too large."""
    with closing(connect(file, busy_timeout_seconds=LIMIT_SECONDS)) as db:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check").fetchall()]
        orphans = [str(row) for row in db.execute("PRAGMA foreign_key_check").fetchall()]
        wal_bytes = file.with_name(f"{file.name}-wal").stat().st_size
    too_large = [f"a WAL of {wal_bytes} bytes"] * (wal_bytes > MAX_WAL_BYTES)
    return [each for each in found if each != "ok"] + orphans + too_large


STORAGES: Final[Mapping[str, Callable[..., AbstractContextManager[Storage]]]] = {
    "SQLite": on_sqlite,
    "PostgreSQL": on_postgresql,
}


@click.command()
@click.option(
    "--rounds",
    default=100,
    show_default=True,
    help="How many times to kill the service with SQLite, and with PostgreSQL.",
)
@click.option("--seed", default=1, show_default=True, help="The seed for all random choices.")
def main(rounds: int, seed: int) -> None:
    """Kill the service repeatedly on each storage, and print the result."""
    # Work that the other processes leave is done in this process, which logs a line for each step.
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    broken = []
    for name, storage in STORAGES.items():
        started_at = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, storage(Path(folder)) as lent:
            survived = survive(lent, rounds=rounds, seed=seed)
        seconds = time.monotonic() - started_at
        fates, events = (
            ", ".join(f"{count} {what}" for what, count in each.items())
            for each in (survived.fates, survived.events)
        )
        click.echo(
            f"{name}: {rounds} rounds; requests: {fates}; {survived.answered} add-cards answered; "
            f"events: {events}; {len(survived.broken)} faults; {seconds:.0f} s"
        )
        broken += [f"{name}: {each}" for each in survived.broken]
    for each in broken:
        click.echo(each)
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()
