"""What the figures are to reach, and whether they do."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks.add_card import POSTGRESQL, SQLITE
from tests.benchmarks.imports import FEWER_ROWS, ROWS, SHELL
from tests.benchmarks.imports import OURS as OUR_IMPORT
from tests.benchmarks.pages import OURS as OUR_PAGES
from tests.benchmarks.pages import PAGES
from tests.benchmarks.results import Growth, Load, Results
from tests.benchmarks.servers import FLOOR, LOCKED_PEERS, ON_WAITRESS, OURS, PEERS


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure of each round, or one alone, and what its median is to be, as it is shown."""

    what: str
    measured: Sequence[float]
    target: float
    wanted: float | None = None
    at_least: bool = False
    unit: str = "×"
    decimals: int = 2

    @property
    def median(self) -> float:
        """What counts."""
        return round(statistics.median(self.measured), self.decimals)

    def reaches(self, target: float) -> bool:
        """Tell whether the median is as good as this."""
        return self.median >= target if self.at_least else self.median <= target


def loads(
    results: Results,
    server: str,
    *,
    connections: int = 16,
    processes: int = 1,
    database: str = SQLITE,
) -> Sequence[Load]:
    """Give what was seen of a server in one setting, round by round."""
    found = [
        each
        for each in results.add_card
        if (each.server, each.connections, each.processes, each.database)
        == (server, connections, processes, database)
    ]
    return [each.load for each in sorted(found, key=lambda each: each.round)]


def ratios(these: Sequence[float], those: Sequence[float]) -> Sequence[float]:
    """Divide round by round: what disturbed a round has disturbed both."""
    return [a / b if b else math.inf for a, b in zip(these, those, strict=True)]


def throughputs(seen: Sequence[Load]) -> Sequence[float]:
    """Give how many requests a second did what was asked."""
    return [each.per_second for each in seen]


def better(results: Results, names: Sequence[str]) -> str:
    """Name the peer that answers more at 16 connections."""
    return max(names, key=lambda name: statistics.median(throughputs(loads(results, name))))


def page_ms(results: Results, how: str, page: int) -> Sequence[float]:
    """Give what a page took, round by round."""
    return [each.ms for each in results.pages if (each.how, each.page) == (how, page)]


def goals(results: Results, growth: Growth | None) -> Iterator[Goal]:
    """Hold the figures against what they are to reach."""
    yield from _against_others(results)
    yield Goal(
        what=f"Page {PAGES[-1]:,} against page 1, total included",
        measured=ratios(
            page_ms(results, OUR_PAGES, PAGES[-1]), page_ms(results, OUR_PAGES, PAGES[0])
        ),
        target=1.3,
    )
    yield from _of_imports(results)
    yield from _of_one_process(results)
    yield from _of_the_worker(results)
    if growth is not None:
        yield _of_growth(growth)


def _against_others(results: Results) -> Iterator[Goal]:
    as_taught, with_lock = better(results, PEERS), better(results, LOCKED_PEERS)
    for name, connections, target, wanted in (
        (as_taught, 16, 3.0, 4.0),
        (with_lock, 16, 2.0, 3.0),
        (FLOOR, 16, 0.75, 0.9),
    ):
        ours, theirs = (loads(results, each, connections=connections) for each in (OURS, name))
        yield Goal(
            what=f"Add-card a second, {connections} connections, against {name}",
            measured=ratios(throughputs(ours), throughputs(theirs)),
            target=target,
            wanted=wanted,
            at_least=True,
        )
        if name == as_taught:
            yield Goal(
                what=f"Its 99th percentile against {name}",
                measured=ratios([each.p99_ms for each in ours], [each.p99_ms for each in theirs]),
                target=0.1,
            )
    crowd = loads(results, OURS, connections=64)
    yield Goal(
        what="Add-card a second, 64 connections against 16",
        measured=ratios(throughputs(crowd), throughputs(loads(results, OURS))),
        target=1.0,
        at_least=True,
    )
    yield Goal(
        what="Requests refused or cut off at 64 connections, all rounds",
        measured=[sum(each.refused + each.cut_off for each in crowd)],
        target=0,
        unit="",
        decimals=0,
    )


def _of_imports(results: Results) -> Iterator[Goal]:
    ours, shells, fewer = (
        [each for each in results.imports if (each.how, each.rows) == wanted]
        for wanted in ((OUR_IMPORT, ROWS), (SHELL, ROWS), (OUR_IMPORT, FEWER_ROWS))
    )
    yield Goal(
        what=f"Import of {ROWS:,} guests, validated, against `.import`",
        measured=ratios([each.seconds for each in ours], [each.seconds for each in shells]),
        target=8,
        wanted=4,
    )
    yield Goal(
        what=f"Its memory with {ROWS:,} rows against {FEWER_ROWS:,}",
        measured=[each.peak_mb / fewer[0].peak_mb for each in ours],
        target=1.1,
    )


def _of_one_process(results: Results) -> Iterator[Goal]:
    starts = [each for each in results.starts if each.server == ON_WAITRESS]
    yield Goal(
        what="From start to the first answer, `cardonfile serve`",
        measured=[each.seconds for each in starts],
        target=1.0,
        wanted=0.5,
        unit=" s",
    )
    yield Goal(
        what="Memory at rest, `cardonfile serve`",
        measured=[each.memory_mb for each in starts],
        target=100,
        unit=" MB",
        decimals=0,
    )
    _, warm, last = results.memory
    yield Goal(
        what="Memory that 100,000 requests add",
        measured=[last.memory_mb - warm.memory_mb],
        # Python's allocator gives and takes by the megabyte.
        target=1,
        unit=" MB",
        decimals=1,
    )


def settled_per_second(results: Results, database: str, workers: int) -> Sequence[float]:
    """Give how many sessions were settled in a second, round by round."""
    return [
        each.per_second
        for each in results.settlements
        if (each.database, each.workers) == (database, workers)
    ]


def _of_the_worker(results: Results) -> Iterator[Goal]:
    for database, workers, target in ((SQLITE, 1, 20), (POSTGRESQL, 1, 20), (POSTGRESQL, 2, 40)):
        yield Goal(
            what=f"Sessions settled a second, {database}, workers: {workers}, calls of 300 ms",
            measured=settled_per_second(results, database, workers),
            target=target,
            at_least=True,
            unit="",
            decimals=1,
        )
    yield Goal(
        what="From a card typed to a card stored without a browser, 10 a second, 99th percentile",
        measured=[results.settled.p99_ms / 1000],
        target=2,
        unit=" s",
    )


def grown(growth: Growth, sessions: int, connections: int) -> Sequence[Load]:
    """Give what was seen with so many sessions, round by round."""
    return [
        each.load
        for each in growth.add_card
        if (each.sessions, each.connections) == (sessions, connections)
    ]


def _of_growth(growth: Growth) -> Goal:
    sizes = sorted({each.sessions for each in growth.add_card})
    cpu = [
        [each.cpu_seconds_per_thousand for each in grown(growth, size, 16)]
        for size in (sizes[-1], sizes[0])
    ]
    return Goal(
        what=f"CPU of add-card with {sizes[-1]:,} sessions against {sizes[0]:,}",
        measured=ratios(*cpu),
        target=1.2,
    )
