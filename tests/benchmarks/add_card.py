"""Add-card under load: the service, the peers and the floor, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.benchmarks.load import WARM_UP_SECONDS, add_cards
from tests.benchmarks.results import AddCard
from tests.benchmarks.servers import ALL, OURS, PEERS, Sample, Server, make_site
from tests.postgresql import new_database

SQLITE: Final = "SQLite"
POSTGRESQL: Final = "PostgreSQL"

CONNECTIONS: Final = (1, 16, 64)


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """A server in one of its settings, and the loads that it gets."""

    server: str
    database: str = SQLITE
    processes: int = 1
    connections: tuple[int, ...] = (16,)


SETTINGS: Final = (
    *(Setting(server=name, connections=CONNECTIONS) for name in ALL),
    *(Setting(server=name, processes=2) for name in (OURS, *PEERS)),
    *(
        Setting(server=name, database=POSTGRESQL, processes=processes)
        for processes in (1, 2)
        for name in (OURS, *PEERS)
    ),
)


def measure(
    folder: Path,
    sample: Sample,
    postgresql: str,
    *,
    rounds: int,
    seconds: int,
    say: Callable[[str], None],
) -> Iterator[AddCard]:
    """Have every server run all the time, and load one after the other, round by round."""
    with ExitStack() as stack:
        servers = [
            (setting, start(setting, stack, folder / str(number), sample, postgresql))
            for number, setting in enumerate(SETTINGS)
        ]
        for number in range(1, rounds + 1):
            say(f"add-card, round {number} of {rounds}")
            # Each has another place in each round, and so has each number of connections.
            first = (number - 1) * len(servers) // rounds
            for setting, server in servers[first:] + servers[:first]:
                add_cards(server, connections=16, seconds=WARM_UP_SECONDS)
                turn = number % len(setting.connections)
                for connections in setting.connections[turn:] + setting.connections[:turn]:
                    yield AddCard(
                        server=setting.server,
                        database=setting.database,
                        processes=setting.processes,
                        connections=connections,
                        round=number,
                        load=add_cards(server, connections=connections, seconds=seconds),
                    )


def start(
    setting: Setting, stack: ExitStack, folder: Path, sample: Sample, postgresql: str
) -> Server:
    """Start a server with a database of its own, until the stack is left."""
    database = None
    if setting.database == POSTGRESQL:
        database = stack.enter_context(new_database(postgresql, migrated=False))
    site = make_site(setting.server, folder, sample, database)
    return stack.enter_context(site.running(setting.processes))
