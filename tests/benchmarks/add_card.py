"""Benchmarks of add-card over HTTP: throughput, the whole flow, start-up time and memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.benchmarks.burner import burner_on_two_cores
from tests.benchmarks.load import WARM_UP_SECONDS, add_cards, add_cards_to_the_end, memory_mb
from tests.benchmarks.results import Row
from tests.benchmarks.servers import (
    ALL,
    FLASK,
    ON_WAITRESS,
    OURS,
    OWN,
    POSTGRESQL,
    RUNTIME,
    SQLITE,
    Sample,
    Server,
    make_server,
    with_metrics,
)
from tests.postgresql import new_database

CONNECTIONS: Final = (1, 16, 64)

WARM_UP_REQUESTS: Final = 40_000
"""After so many requests, every thread has a connection and the cache of each is full."""
MEMORY_REQUESTS: Final = 100_000
_STEP_SECONDS: Final = 4
_REST_SECONDS: Final = 1

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A server with its database, its number of processes and the numbers of client connections."""

    server: str = OURS
    database: str = SQLITE
    processes: int = 1
    connections: tuple[int, ...] = (16,)


SETTINGS: Final = (
    *(Setting(server=name, connections=CONNECTIONS) for name in ALL),
    *(Setting(server=name, processes=2) for name in (OURS, FLASK)),
    *(
        Setting(server=name, database=POSTGRESQL, processes=processes)
        for processes in (1, 2)
        for name in (OURS, FLASK)
    ),
)
BURNER_SETTINGS: Final = tuple(
    Setting(server=name, connections=(16, 64)) for name in (ON_WAITRESS, OURS, FLASK)
)
PROCESSES_SETTINGS: Final = tuple(
    Setting(database=POSTGRESQL, processes=processes) for processes in (1, 2, 4)
)
"""More and more processes on one PostgreSQL."""
FLOW_SETTINGS: Final = (Setting(), Setting(processes=2), Setting(database=POSTGRESQL))


def _started(
    settings: Sequence[Setting], stack: ExitStack, folder: Path, sample: Sample, postgresql: str
) -> list[tuple[Setting, Server]]:
    """Start a server for each setting, with a new database. Closing the stack stops the servers."""
    folder.mkdir()
    started = []
    for number, setting in enumerate(settings):
        database = None
        if setting.database == POSTGRESQL:
            database = stack.enter_context(new_database(postgresql, migrated=False))
        server = make_server(setting.server, folder / str(number), sample, database)
        stack.enter_context(server.running(setting.processes))
        started.append((setting, server))
    return started


def measure(
    folder: Path,
    sample: Sample,
    postgresql: str,
    *,
    rounds: int,
    seconds: int,
    say: Say,
    settings: Sequence[Setting],
    has_burner: bool = False,
) -> Iterator[Row]:
    """Start all servers. In each round, put load on one server after another.

    With `has_burner`, the servers run on two cores, together with a process that is always busy.
    """
    what, own = "add-card", folder / "add_card"
    if has_burner:
        what, own = "add-card beside a burner", folder / "burner"
    with burner_on_two_cores() if has_burner else nullcontext(), ExitStack() as stack:
        servers = _started(settings, stack, own, sample, postgresql)
        for number in range(1, rounds + 1):
            say(f"{what}, round {number} of {rounds}")
            # The order of the servers, and of the connections, changes from round to round.
            first = (number - 1) * len(servers) // rounds
            for setting, server in servers[first:] + servers[:first]:
                add_cards(server, connections=16, seconds=WARM_UP_SECONDS)
                turn = number % len(setting.connections)
                for connections in setting.connections[turn:] + setting.connections[:turn]:
                    yield {
                        "server": setting.server,
                        "database": setting.database,
                        "processes": setting.processes,
                        "connections": connections,
                        "round": number,
                        **add_cards(server, connections=connections, seconds=seconds),
                    }


def measure_flow(
    folder: Path, sample: Sample, postgresql: str, *, rounds: int, seconds: int, say: Say
) -> Iterator[Row]:
    """Measure the flow from add-card to the stored card in each round.

    Only the service is measured, because the other programs do not have this flow.
    """
    with ExitStack() as stack:
        servers = _started(FLOW_SETTINGS, stack, folder / "flow", sample, postgresql)
        for _, server in servers:
            add_cards_to_the_end(server, seconds=WARM_UP_SECONDS)
        for number in range(1, rounds + 1):
            say(f"whole flow, round {number} of {rounds}")
            for setting, server in servers:
                yield {
                    "database": setting.database,
                    "processes": setting.processes,
                    "round": number,
                    **add_cards_to_the_end(server, seconds=seconds),
                }


def measure_metrics(
    folder: Path, sample: Sample, *, rounds: int, seconds: int, say: Say
) -> Iterator[Row]:
    """Put load on each server twice in immediate succession: with and without metrics."""
    with ExitStack() as stack:
        memory = stack.enter_context(TemporaryDirectory(dir="/dev/shm"))
        pairs = []
        for name in (ON_WAITRESS, OURS):
            off, on = (make_server(name, folder / f"metrics-{name}-{n}", sample) for n in range(2))
            pairs.append([(False, off), (True, with_metrics(on, memory))])
            for _, server in pairs[-1]:
                stack.enter_context(server.running())
        for number in range(1, rounds + 1):
            say(f"metrics, round {number} of {rounds}")
            for pair in pairs:
                pair.reverse()
                for has_metrics, server in pair:
                    add_cards(server, connections=16, seconds=WARM_UP_SECONDS)
                    yield {
                        "server": server.name,
                        "has_metrics": has_metrics,
                        "round": number,
                        **add_cards(server, connections=16, seconds=seconds),
                    }


def measure_start(folder: Path, sample: Sample, *, rounds: int, say: Say) -> Iterator[Row]:
    """Measure the time from the start to the first response of add-card, and the idle memory."""
    servers = [
        make_server(name, folder / f"start-{number}", sample) for number, name in enumerate(ALL)
    ]
    for number in range(1, rounds + 1):
        say(f"start, round {number} of {rounds}")
        for server in servers:
            if server.name in OWN:
                server.python = RUNTIME
            began = time.perf_counter()
            with server.running():
                seconds = round(time.perf_counter() - began, 3)
                time.sleep(_REST_SECONDS)
                yield {
                    "server": server.name,
                    "round": number,
                    "seconds": seconds,
                    "memory_mb": memory_mb(server.pid),
                }


def measure_memory(folder: Path, sample: Sample, *, say: Say) -> Iterator[Row]:
    """Measure the memory after the start, after a warm-up and after many more requests."""
    say(f"memory over {MEMORY_REQUESTS:,} requests")
    server = make_server(OURS, folder / "memory", sample)
    server.python = RUNTIME
    with server.running():
        done = 1
        for goal in (done, WARM_UP_REQUESTS, WARM_UP_REQUESTS + MEMORY_REQUESTS):
            while done < goal:
                load = add_cards(server, connections=16, seconds=_STEP_SECONDS)
                done += load["responses"]
            yield {"requests": done, "memory_mb": memory_mb(server.pid)}
