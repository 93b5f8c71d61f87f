"""Kills a service again and again under load, and checks what is stored.

`make torture` does it a hundred times on SQLite and on PostgreSQL, and prints the result. The seed
decides what clients do and when the kill comes. Which requests a kill hits depends on timing.
"""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Final, NamedTuple

import click

from adapters.psp.contract.concurrency import at_once
from adapters.sqlite.connection import connect
from tests.entrypoints.load import (
    CLIENTS,
    Clients,
    Machines,
    look_at,
    one_machine_on_sqlite,
    records_of,
)
from tests.entrypoints.postgresql_outages import crashed
from tests.postgresql import new_database, own_server
from tests.waiting import wait_until

CRASH_EVERY: Final = 2
"""PostgreSQL crashes in every second round."""

KILLED_AT_START: Final = 0.2
"""The share of starts that are killed as well."""

MAX_WAL_BYTES: Final = 16 * 1024 * 1024
"""SQLite aims at 4 MiB, and exceeds it while readers hold a checkpoint back."""


@dataclass(frozen=True, kw_only=True)
class Storage:
    """An installation on one kind of storage.

    `crash` crashes the database server for a block, if there is one. `damage` describes corruption.
    """

    machines: Machines
    crash: Callable[[], AbstractContextManager[None]] | None
    damage: Callable[[], list[str]]


class Survived(NamedTuple):
    """What happened to all requests, how many add-cards were answered, and everything wrong."""

    fates: Counter[str]
    answered: int
    broken: list[str]


def survive(storage: Storage, *, rounds: int, seed: int) -> Survived:
    """Kill the machine once in each round, at a random moment, and check what is stored.

    Clients retry unanswered requests. Between rounds they pause: everything that was answered is
    compared with what is stored, and the requests of the round are repeated.
    """
    machines, chance = storage.machines, random.Random(seed)
    (machine,) = machines.each
    clients, broken = Clients(machines, f"seed-{seed}", CLIENTS), list[str]()

    def note(kind: str, found: Iterable[object]) -> None:
        broken.extend(f"{kind}: {each}" for each in found)

    machines.start()
    with closing(clients):
        for number in range(1, rounds + 1):
            known = {id(each) for each in clients.added}
            _kill_under_load(storage, clients, chance, crashes=number % CRASH_EVERY == 0)
            records = records_of(machines.url)
            note("damage", storage.damage())
            note("lost", records.lost(clients.added))
            note("unasked", records.unasked(clients.added, clients.given_up))
            note("without one default", records.without_one_default())
            _ask_again(clients, known)
    note("exit status", filter(None, [machine.stop()]))
    note("unexpected", clients.unexpected)
    note("fault", machine.faults())
    for kind, found in vars(look_at(machines, clients)).items():
        note(kind, found)
    return Survived(clients.fates, len(clients.added), broken)


def _kill_under_load(
    storage: Storage, clients: Clients, chance: random.Random, *, crashes: bool
) -> None:
    (machine,), stop = storage.machines.each, Event()
    with clients.doing(lambda client: client.add_cards_until(stop.is_set), stop):
        enough = clients.fates["answered"] + chance.randrange(20, 150)
        wait_until(lambda: clients.fates["answered"] >= enough)
        # Without it, kills would always come right after a response.
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
def on_sqlite(folder: Path) -> Iterator[Storage]:
    """Lend an installation on SQLite."""
    with closing(one_machine_on_sqlite(folder)) as machines:
        files = [machines.installation.database, machines.psp_database]

        def damage() -> list[str]:
            return [f"{file.name}: {each}" for file in files for each in damage_of(file)]

        yield Storage(machines=machines, crash=None, damage=damage)


@contextmanager
def on_postgresql(folder: Path) -> Iterator[Storage]:
    """Lend an installation on PostgreSQL. Its fake PSP has an SQLite file."""
    with (
        own_server() as server,
        new_database(server.url) as url,
        closing(Machines(folder, url, machines=1)) as machines,
    ):

        def damage() -> list[str]:
            return damage_of(machines.psp_database)

        yield Storage(machines=machines, crash=lambda: crashed(server), damage=damage)


def damage_of(file: Path) -> list[str]:
    """Return what SQLite's checks find in a file, and whether its WAL is too large."""
    with closing(connect(file, busy_timeout_seconds=5)) as db:
        found = [str(row[0]) for row in db.execute("PRAGMA integrity_check").fetchall()]
        orphans = [str(row) for row in db.execute("PRAGMA foreign_key_check").fetchall()]
        wal_bytes = file.with_name(f"{file.name}-wal").stat().st_size
    too_large = [f"a WAL of {wal_bytes} bytes"] * (wal_bytes > MAX_WAL_BYTES)
    return [each for each in found if each != "ok"] + orphans + too_large


STORAGES: Final[Mapping[str, Callable[[Path], AbstractContextManager[Storage]]]] = {
    "SQLite": on_sqlite,
    "PostgreSQL": on_postgresql,
}


@click.command()
@click.option("--rounds", default=100, show_default=True, help="How many kills on each storage.")
@click.option("--seed", default=1, show_default=True, help="The seed of all random choices.")
def main(rounds: int, seed: int) -> None:
    """Kill the service again and again on each storage, and print the result."""
    broken = []
    for name, storage in STORAGES.items():
        started_at = time.monotonic()
        with tempfile.TemporaryDirectory() as folder, storage(Path(folder)) as lent:
            survived = survive(lent, rounds=rounds, seed=seed)
        seconds = time.monotonic() - started_at
        fates = ", ".join(f"{count} {fate}" for fate, count in survived.fates.items())
        click.echo(
            f"{name}: {rounds} rounds; requests: {fates}; {survived.answered} add-cards answered; "
            f"{len(survived.broken)} faults; {seconds:.0f} s"
        )
        broken += [f"{name}: {each}" for each in survived.broken]
    for each in broken:
        click.echo(each)
    raise SystemExit(bool(broken))


if __name__ == "__main__":
    main()
