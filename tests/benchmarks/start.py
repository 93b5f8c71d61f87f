"""How long a server takes from its start to its first answer, and its memory at rest."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.benchmarks.processes import memory_mb
from tests.benchmarks.results import Start
from tests.benchmarks.servers import OWN, PEERS, Sample, as_installed, make_site

SERVERS: Final = (*OWN, *PEERS)
REST_SECONDS: Final = 1


def measure(
    folder: Path, sample: Sample, *, rounds: int, say: Callable[[str], None]
) -> Iterator[Start]:
    """Start each server, ask it to add a card until it answers, and leave it alone a moment."""
    sites = [
        as_installed(make_site(name, folder / f"start-{number}", sample))
        for number, name in enumerate(SERVERS)
    ]
    for number in range(1, rounds + 1):
        say(f"start, round {number} of {rounds}")
        for site in sites:
            began = time.perf_counter()
            with site.running() as server:
                seconds = time.perf_counter() - began
                time.sleep(REST_SECONDS)
                yield Start(
                    server=site.name,
                    round=number,
                    seconds=round(seconds, 3),
                    memory_mb=round(memory_mb(server.process.pid), 1),
                )
