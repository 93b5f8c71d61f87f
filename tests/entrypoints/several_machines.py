"""Three machines on one PostgreSQL, clients that keep them busy, and what may happen meanwhile.

`python -m tests.entrypoints.several_machines` prints the figures: what became of each request, what
was lost or doubled (nothing), and how long requests take while PostgreSQL is away. It takes about a
minute and a half.
"""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event
from typing import Final

import click

from adapters.psp.contract.concurrency import at_once
from tests.adapters.postgresql.by_hand import cut_off
from tests.entrypoints.load import CLIENTS, Client, Clients, Machines, look_at
from tests.postgresql import PostgresqlServer, new_database, own_server
from tests.programs import DEADLINE_SECONDS
from tests.waiting import wait_until

MACHINES: Final = 3
HAMMERING: Final = 24
CUTS: Final = 10


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


@contextmanager
def three_machines(folder: Path, server: PostgresqlServer) -> Iterator[Machines]:
    """Lend machines that run, on a new database."""
    with (
        new_database(server.url) as url,
        closing(Machines(folder, url, machines=MACHINES)) as machines,
    ):
        machines.start()
        yield machines


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
        found = look_at(machines, load, after)
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
