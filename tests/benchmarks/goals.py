"""The goals, and whether the figures reach them."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks import guests, pipeline, products
from tests.benchmarks.results import Results
from tests.benchmarks.servers import (
    FLASK,
    FLOOR,
    ON_WAITRESS,
    OURS,
    POSTGRESQL,
    SQLITE,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A figure, measured in each round or once; its median counts, rounded as it is shown."""

    what: str
    measured: Sequence[float]
    target: float
    wanted: float | None = None
    at_least: bool = False
    unit: str = "×"
    decimals: int = 2

    def reaches(self, target: float) -> bool:
        """Return whether the median is at least, or at most, a target."""
        median = round(statistics.median(self.measured), self.decimals)
        return median >= target if self.at_least else median <= target


def loads(
    results: Results,
    figure: str,
    server: str,
    *,
    connections: int = 16,
    processes: int = 1,
    database: str = SQLITE,
    section: str = "add_card",
) -> list[float]:
    """Return a figure of add-card under load, round by round."""
    return results.figures(
        section,
        figure,
        server=server,
        connections=connections,
        processes=processes,
        database=database,
    )


def ratios(these: Sequence[float], those: Sequence[float]) -> Sequence[float]:
    """Divide round by round: a disturbance affects both figures of its round."""
    return [a / b if b else math.inf for a, b in zip(these, those, strict=True)]


def goals(results: Results, growth: Results) -> Iterator[Goal]:
    """Return all goals, in the order of the page."""
    yield from _of_add_card(results)
    yield from _of_serve(results, has_burner=False)
    for server in (ON_WAITRESS, OURS):
        on, off = (
            results.figures("metrics", "per_second", server=server, has_metrics=has_metrics)
            for has_metrics in (True, False)
        )
        yield Goal(
            what=f"Throughput, metrics on against off, {server}",
            measured=ratios(on, off),
            target=0.97,
            at_least=True,
        )
    yield from _of_serve(results, has_burner=True)
    ms = [
        results.figures("pages", "ms", how=products.OURS, page=page)
        for page in (products.PAGES[-1], products.PAGES[0])
    ]
    last_page = f"Page {products.PAGES[-1]:,} against page 1, total included"
    yield Goal(what=last_page, measured=ratios(*ms), target=1.3)
    yield from _of_imports(results)
    yield from _of_one_process(results)
    yield from _of_the_worker(results)
    sizes = growth.figures("growth", "sessions")
    most, least = int(max(sizes)), int(min(sizes))
    cpu = [
        growth.figures("growth", "cpu_seconds_per_thousand", sessions=size, connections=16)
        for size in (most, least)
    ]
    what = f"CPU of add-card with {most:,} sessions against {least:,}"
    yield Goal(what=what, measured=ratios(*cpu), target=1.2)


def _of_add_card(results: Results) -> Iterator[Goal]:
    def per_second(server: str, connections: int = 16) -> list[float]:
        return loads(results, "per_second", server, connections=connections)

    for name, target, wanted in ((FLASK, 3.0, 4.0), (FLOOR, 0.75, 0.9)):
        yield Goal(
            what=f"Throughput, 16 connections, against {name}",
            measured=ratios(per_second(OURS), per_second(name)),
            target=target,
            wanted=wanted,
            at_least=True,
        )
        if name == FLASK:
            p99 = [loads(results, "p99_ms", each) for each in (OURS, name)]
            what = f"Its 99th percentile against {name}"
            yield Goal(what=what, measured=ratios(*p99), target=0.1)
    yield Goal(
        what="Throughput, 64 connections against 16",
        measured=ratios(per_second(OURS, 64), per_second(OURS)),
        target=1.0,
        at_least=True,
    )
    yield Goal(
        what="Requests that failed at 64 connections, all rounds",
        measured=[sum(loads(results, "failed", OURS, connections=64))],
        target=0,
        unit="",
        decimals=0,
    )


def _of_serve(results: Results, *, has_burner: bool) -> Iterator[Goal]:
    section = "beside_burner" if has_burner else "add_card"
    where = ", beside a burner" if has_burner else ""

    def figures(figure: str, server: str, connections: int) -> list[float]:
        return loads(results, figure, server, connections=connections, section=section)

    per_second = {count: figures("per_second", ON_WAITRESS, count) for count in (16, 64)}
    for count, each in per_second.items():
        yield Goal(
            what=f"Throughput, `cardonfile serve`, {count} connections, against Flask{where}",
            measured=ratios(each, figures("per_second", FLASK, count)),
            target=1.9,
            at_least=True,
        )
    yield Goal(
        what=f"Throughput, `cardonfile serve`, 64 connections against 16{where}",
        measured=ratios(per_second[64], per_second[16]),
        target=0.85,
        at_least=True,
    )
    yield Goal(
        what=f"Its 99th percentile at 64 connections{where}",
        measured=figures("p99_ms", ON_WAITRESS, 64),
        target=100,
        unit=" ms",
        decimals=0,
    )
    yield Goal(
        what=f"Longest wait of a new client beside {pipeline.CLIENTS} that pipeline{where}",
        measured=results.figures("pipelines", "longest_seconds", has_burner=has_burner),
        target=1,
        unit=" s",
    )


def _of_imports(results: Results) -> Iterator[Goal]:
    def figures(figure: str, how: str, rows: int = guests.ROWS) -> list[float]:
        return results.figures("imports", figure, how=how, rows=rows)

    yield Goal(
        what=f"Import of {guests.ROWS:,} guests, validated, against `.import`",
        measured=ratios(figures("seconds", guests.OURS), figures("seconds", guests.SHELL)),
        target=8,
        wanted=4,
    )
    (fewer,) = figures("peak_mb", guests.OURS, guests.FEWER_ROWS)
    yield Goal(
        what=f"Its memory with {guests.ROWS:,} rows against {guests.FEWER_ROWS:,}",
        measured=[each / fewer for each in figures("peak_mb", guests.OURS)],
        target=1.1,
    )


def _of_one_process(results: Results) -> Iterator[Goal]:
    yield Goal(
        what="From start to the first answer, `cardonfile serve`",
        measured=results.figures("starts", "seconds", server=ON_WAITRESS),
        target=1.0,
        wanted=0.5,
        unit=" s",
    )
    yield Goal(
        what="Memory at rest, `cardonfile serve`",
        measured=results.figures("starts", "memory_mb", server=ON_WAITRESS),
        target=100,
        unit=" MB",
        decimals=0,
    )
    _, warm, last = results.figures("memory", "memory_mb")
    yield Goal(
        what="Memory that 100,000 requests add",
        measured=[last - warm],
        # Python's allocator gets and frees memory in megabytes.
        target=1,
        unit=" MB",
        decimals=1,
    )


def _of_the_worker(results: Results) -> Iterator[Goal]:
    for database, workers, target in ((SQLITE, 1, 20), (POSTGRESQL, 1, 20), (POSTGRESQL, 2, 40)):
        yield Goal(
            what=f"Sessions settled a second, {database}, workers: {workers}",
            measured=results.figures(
                "settlements", "per_second", database=database, workers=workers
            ),
            target=target,
            at_least=True,
            unit="",
            decimals=1,
        )
    yield Goal(
        what="From card typed to stored, no browser, 10 a second, 99th percentile",
        measured=[each / 1000 for each in results.figures("settled", "p99_ms")],
        target=2,
        unit=" s",
    )
