"""Kill the parts of a cluster under load, and count lost and duplicate records.

`make test-cluster` runs this module, which prints the result. The exit status is 1 if a record is
lost, if a record exists twice, or if a response was wrong. A client that gets 503 or no response
repeats its request.
"""

from __future__ import annotations

import signal
import statistics
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from itertools import pairwise
from threading import Event
from typing import Final, NamedTuple

import click
import psycopg
import structlog

from adapters.psp_suite.concurrency import at_once
from domain.events.event import ENDPOINT_TYPES
from tests.cluster.cluster import STATE_SECONDS, Cluster, Node, running
from tests.entrypoints.load import FAULTS, Clients, Machines, records_of
from tests.entrypoints.torture import UnreliableEndpoint, find_broken
from tests.waiting import wait_until

CLIENTS: Final = 3
PAUSE_SECONDS: Final = 0.3
"""The pause of a client between two cards. A few requests a second suffice to find a loss."""
PAUSES_SECONDS: Final = (0.1, 0.2, *[0.3] * 3_000)
"""The pauses of a client between retries."""
ANSWERS: Final = 12
"""How many add-card requests must be answered before a fault, and again after it."""
REFUSALS: Final = 6
"""How many requests must be refused before the standbys are restarted."""
PAUSED_SECONDS: Final = 30
AWAY_SECONDS: Final = 40
"""How long etcd is stopped: twice the time after which Patroni demotes a primary without etcd."""
MAX_LENGTH: Final = 250
"""How many characters of a description are printed."""


class Load:
    """Clients that send add-card requests, and the times at which these were answered."""

    def __init__(self, machines: Machines, seed: int) -> None:
        self.clients = Clients(machines, f"seed-{seed}", CLIENTS, PAUSES_SECONDS)
        self._times: list[float] = []
        self._known: set[int] = set()
        self._watches = True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    @property
    def answered(self) -> int:
        """How many add-card requests were answered."""
        return len(self.clients.added)

    def go_on(self, count: Callable[[], int] | None = None, more: int = ANSWERS) -> None:
        """Wait until `count` has increased by `more`.

        By default, `count` is the number of add-card requests that were answered.
        """
        count = count or (lambda: self.answered)
        enough = count() + more
        wait_until(lambda: count() >= enough, seconds=STATE_SECONDS)

    def longest_gap(self, since: float) -> float:
        """Return the longest time without a response to an add-card request, in seconds."""
        before = max((each for each in self._times if each <= since), default=since)
        times = [before, *(each for each in self._times if each > since)]
        return max(after - now for now, after in pairwise(times))

    def seconds_to_response(self, since: float) -> float:
        """Return how many seconds after `since` the next add-card request was answered."""
        return next(each for each in self._times if each > since) - since

    def ask_again(self) -> None:
        """Repeat all requests that were answered since the last call.

        Each repeated request must get the same response.
        """

        def ask(number: int) -> None:
            client = self.clients.each[number]
            for added in client.added:
                if id(added) not in self._known:
                    client.ask_again(added)

        at_once(len(self.clients.each), ask)
        self._known = {id(each) for each in self.clients.added}

    def close(self) -> None:
        """Close the connections of the clients."""
        self._watches = False
        self._thread.join()
        self.clients.close()

    def _watch(self) -> None:
        seen = 0
        while self._watches:
            if (now := self.answered) > seen:
                seen = now
                self._times.append(time.monotonic())
            time.sleep(0.02)


@dataclass
class Outcome:
    """The effect of one fault.

    - `gap_seconds`: the longest time without a response to an add-card request.
    - `engine_seconds`: the time until Patroni had a primary that could commit. If all standbys are
      killed, it includes the time until they are restarted.
    - `rest_seconds`: the time from that moment to the next response.
    - `refused`: the number of responses with 503.
    - `broken`: descriptions of everything that happened although it must not happen.
    """

    gap_seconds: float
    engine_seconds: float
    rest_seconds: float
    refused: int
    broken: list[str]


Mend = Callable[[], object]


class Struck(NamedTuple):
    """When a primary could commit after a fault began, and a function that ends the fault."""

    ready_at: float
    mend: Mend


class Fault(NamedTuple):
    """A fault with a name and a function that causes the fault.

    If something happens that must not happen, `strike` calls its third argument with a description.
    """

    name: str
    strike: Callable[[Cluster, Load, Callable[[str], None]], Struck]


def _writable(cluster: Cluster, but: Node | None = None) -> float:
    """Wait until there is a primary other than `but` that can commit. Return the time."""
    wait_until(lambda: cluster.writable(but=but), seconds=STATE_SECONDS)
    return time.monotonic()


def _nothing() -> None:
    """Do nothing, because the fault has already ended."""


def _kill_primary(cluster: Cluster, _: Load, __: Callable[[str], None]) -> Struck:
    primary = cluster.primary()
    primary.die()
    return Struck(_writable(cluster, primary), primary.start)


def _pause_primary(cluster: Cluster, _: Load, note: Callable[[str], None]) -> Struck:
    primary, began = cluster.primary(), time.monotonic()
    connection = psycopg.connect(primary.url, autocommit=True)
    primary.pause()
    ready_at = _writable(cluster, primary)

    def come_back() -> None:
        time.sleep(max(0, began + PAUSED_SECONDS - time.monotonic()))
        primary.resume()
        # Try to write on the old connection. Then try to write on new connections until Patroni has
        # decided on the role of this node.
        if _writes(connection):
            note("the old primary accepted a write on an old connection")
        while not (primary.responds("/replica") or primary.responds("/primary")):
            with suppress(psycopg.Error):
                connected = psycopg.connect(primary.url, autocommit=True, connect_timeout=2)
                if _writes(connected):
                    note("the old primary accepted a write on a new connection")
        if primary.responds("/primary"):
            note("the old primary took over again from the new primary")

    return Struck(ready_at, come_back)


def _writes(connection: psycopg.Connection) -> bool:
    with suppress(psycopg.Error), closing(connection):
        connection.execute("INSERT INTO written VALUES (1)")
        return True
    return False


def _stop_etcd(cluster: Cluster, load: Load, note: Callable[[str], None]) -> Struck:
    primary, began = cluster.primary(), time.monotonic()
    cluster.etcd.kill()
    time.sleep(AWAY_SECONDS)
    load.go_on()
    if cluster.primary() is not primary:
        note("Patroni changed the primary although all nodes were running")
    return Struck(began, cluster.etcd.start)


def _pause_standby(cluster: Cluster, _: Load, __: Callable[[str], None]) -> Struck:
    primary, (standby, _other) = cluster.primary(), cluster.standbys()
    standby.pause()
    shown = "SHOW synchronous_standby_names"
    wait_until(lambda: standby.name not in primary.ask(shown), seconds=STATE_SECONDS)
    return Struck(time.monotonic(), standby.resume)


def _kill_standbys(cluster: Cluster, load: Load, note: Callable[[str], None]) -> Struck:
    primary, standbys = cluster.primary(), cluster.standbys()
    for each in standbys:
        each.die()
    before = load.answered
    wait_until(lambda: primary.ask("SHOW synchronous_standby_names") == "*", seconds=STATE_SECONDS)
    load.go_on(lambda: load.clients.fates["refused"], REFUSALS)
    # The response to each client may already have been on its way.
    if load.answered > before + CLIENTS:
        note(f"{load.answered - before} add-card requests were answered without a standby")
    for each in standbys:
        each.start()
    return Struck(_writable(cluster), _nothing)


def _restart_haproxy(cluster: Cluster, _: Load, __: Callable[[str], None]) -> Struck:
    cluster.haproxy.kill()
    cluster.haproxy.start()
    return Struck(time.monotonic(), _nothing)


def _switch_over(cluster: Cluster, _: Load, note: Callable[[str], None]) -> Struck:
    primary = cluster.primary()
    switching = cluster.switch_over(primary, cluster.standbys()[0])
    ready_at = _writable(cluster, primary)
    if switching.wait():
        note("patronictl failed")
    return Struck(ready_at, _nothing)


FAULTS_OF_CLUSTER: Final = (
    Fault("kill -9 of the primary", _kill_primary),
    Fault("primary paused for 30 s", _pause_primary),
    Fault("etcd stopped for 40 s", _stop_etcd),
    Fault("one standby paused", _pause_standby),
    Fault("both standbys killed", _kill_standbys),
    Fault("HAProxy restarted", _restart_haproxy),
    Fault("switchover by hand", _switch_over),
)


def _kill_primary_before_it_replicates(
    cluster: Cluster, load: Load, _: Callable[[str], None]
) -> Struck:
    primary = cluster.primary()
    primary.signal(signal.SIGSTOP, only="walsender")
    load.go_on()
    primary.die()
    return Struck(_writable(cluster, primary), primary.start)


WITHOUT_SYNCHRONOUS_MODE: Final = (
    Fault("kill -9 of the primary, standbys behind", _kill_primary_before_it_replicates),
)


def strike(cluster: Cluster, machines: Machines, load: Load, fault: Fault) -> Outcome:
    """Cause a fault under load, wait until the cluster is healthy, and look for lost records."""
    stop, broken = Event(), list[str]()
    clients = load.clients
    with clients.doing(lambda each: each.add_cards_until(lambda: stop.wait(PAUSE_SECONDS)), stop):
        load.go_on()
        began, refused = time.monotonic(), clients.fates["refused"]
        ready_at, mend = fault.strike(cluster, load, broken.append)
        load.go_on()
        mend()
        wait_until(cluster.is_healthy, seconds=STATE_SECONDS)
        load.go_on()
        gap, rest = load.longest_gap(began), load.seconds_to_response(ready_at)
        refused = clients.fates["refused"] - refused
    records = records_of(machines.url)
    broken += [f"lost: {each}" for each in records.lost(clients.added)]
    broken += [f"unasked: {each}" for each in records.unasked(clients.added, clients.given_up)]
    broken += [f"without one default: {each}" for each in records.without_one_default()]
    load.ask_again()
    return Outcome(gap, max(0.0, ready_at - began), rest, refused, broken)


@click.command()
@click.option("--rounds", default=3, show_default=True, help="How many times each fault is caused.")
@click.option(
    "--seed", default=1, show_default=True, help="The seed for the behavior of the clients."
)
@click.option("--only", default="", help="Cause only the faults whose names contain this text.")
@click.option(
    "--without-synchronous-mode",
    is_flag=True,
    help="Make the standbys asynchronous, and let them lag. Then the run must find lost records.",
)
def main(rounds: int, seed: int, only: str, *, without_synchronous_mode: bool) -> None:
    """Kill the parts of a cluster under load, and print the waits of clients and lost records."""
    # Work that the other processes leave is done in this process, which logs a line for each step.
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    faults = WITHOUT_SYNCHRONOUS_MODE if without_synchronous_mode else FAULTS_OF_CLUSTER
    outcomes = dict[str, list[Outcome]]()
    broken, kinds = list[str](), Counter[str]()

    def note(kind: str, found: Iterable[object]) -> None:
        for each in found:
            kinds[kind] += 1
            broken.append(f"{kind}: {each}")

    with (
        UnreliableEndpoint(seed) as endpoint,
        running(is_synchronous=not without_synchronous_mode) as (cluster, machines),
    ):
        (machine,) = machines.each
        types = [f"--type={each}" for each in ENDPOINT_TYPES]
        endpoint.secret = machine.command("events", "add", endpoint.url, *types)
        with closing(Load(machines, seed)) as load:
            for number in range(1, rounds + 1):
                for fault in (each for each in faults if only in each.name):
                    outcome = strike(cluster, machines, load, fault)
                    outcomes.setdefault(fault.name, []).append(outcome)
                    broken += [f"{fault.name}, round {number}: {each}" for each in outcome.broken]
                    click.echo(_row(fault.name, [outcome]), err=True)
            note("exit status", filter(None, cluster.stop_service()))
            note("fault", (line for line in cluster.lines() if line["event"] in FAULTS))
            events = find_broken(machines, load.clients, endpoint, note)
            answered = load.answered
    click.echo(_HEAD)
    for name, times in outcomes.items():
        click.echo(_row(name, times))
    click.echo(
        f"add-cards: {answered} answered, {kinds['lost']} lost, "
        f"{kinds['unasked'] + kinds['doubled']} doubled; "
        f"answers that were wrong instead of 503: {kinds['unexpected']}; "
        f"events: {events['decided']} decided, {events['delivered']} delivered, "
        f"{kinds['event lost']} lost, {kinds['event invented']} doubled or invented; "
        f"{len(broken)} faults"
    )
    for each in broken:
        click.echo(each[:MAX_LENGTH])
    raise SystemExit(bool(broken))


_HEAD: Final = (
    "| Fault | Times | Without a response to an add-card: median, worst "
    "| Until Patroni had a primary that commits | From then to a response | Refused (503) | Faults |\n"
    "|---|---|---|---|---|---|---|"
)


def _row(name: str, outcomes: list[Outcome]) -> str:
    def told(seconds: Iterable[float]) -> str:
        each = sorted(seconds)
        return f"{statistics.median(each):.1f}, {each[-1]:.1f} s"

    cells = (
        name,
        len(outcomes),
        told(each.gap_seconds for each in outcomes),
        told(each.engine_seconds for each in outcomes),
        told(each.rest_seconds for each in outcomes),
        sum(each.refused for each in outcomes),
        sum(len(each.broken) for each in outcomes),
    )
    return f"| {' | '.join(map(str, cells))} |"


if __name__ == "__main__":
    main()
