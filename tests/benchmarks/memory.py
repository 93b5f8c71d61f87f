"""The memory of the service while it answers requests to add cards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

from tests.benchmarks.load import add_cards
from tests.benchmarks.processes import memory_mb
from tests.benchmarks.results import Memory
from tests.benchmarks.servers import OURS, Sample, as_installed, make_site

WARM_UP_REQUESTS: Final = 40_000
"""By then every thread has its connection, and SQLite has filled the cache of every connection."""
REQUESTS: Final = 100_000

_STEP_SECONDS: Final = 4


def measure(folder: Path, sample: Sample, *, say: Callable[[str], None]) -> Iterator[Memory]:
    """Look at its memory at rest, after a warm-up, and so many requests later."""
    say(f"memory over {REQUESTS:,} requests")
    site = as_installed(make_site(OURS, folder / "memory", sample))
    with site.running() as server:
        answered = 1
        for goal in (answered, WARM_UP_REQUESTS, WARM_UP_REQUESTS + REQUESTS):
            while answered < goal:
                load = add_cards(server, connections=16, seconds=_STEP_SECONDS)
                answered += load.answers
            yield Memory(requests=answered, memory_mb=round(memory_mb(server.process.pid), 1))
