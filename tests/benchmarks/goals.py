"""The performance goals. Checks whether the figures reach the goals."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tests.benchmarks import guests, pipeline, products
from tests.benchmarks.results import Results
from tests.benchmarks.servers import FLASK, FLOOR, ON_WAITRESS, OURS, POSTGRESQL, SQLITE


@dataclass(frozen=True, slots=True)
class Goal:
    """A performance goal for a figure that was measured once or in each round.

    The median of the measured values is compared with the target. Before that, it is rounded to
    `decimals`, as on the page.
    """

    what: str
    measured: Sequence[float]
    target: float
    unit: str = "×"
    decimals: int = 2
    wanted: float | None = None
    at_least: bool = False

    def reaches(self, target: float) -> bool:
        """Return whether the median reaches a target. `at_least` decides the direction."""
        median = round(statistics.median(self.measured), self.decimals)
        return median >= target if self.at_least else median <= target


def ratios(these: Sequence[float], those: Sequence[float]) -> Sequence[float]:
    """Return the ratio of the two figures of each round.

    A disturbance affects both figures of its round, so it hardly affects their ratio.
    """
    return [a / b if b else math.inf for a, b in zip(these, those, strict=True)]


def goals(results: Results, growth: Results) -> Iterator[Goal]:
    """Yield all goals in the order in which the page lists them."""
    yield from _of_add_card(results)
    yield from _of_serve(results, has_burner=False)
    for server in (ON_WAITRESS, OURS):
        on, off = (
            results.figures("metrics", "per_second", server=server, has_metrics=has_metrics)
            for has_metrics in (True, False)
        )
        what = f"{server}: throughput with metrics, compared with no metrics"
        yield Goal(what, ratios(on, off), 0.97, at_least=True)
    yield from _of_serve(results, has_burner=True)
    first, last = (
        results.figures("pages", "ms", how=products.OURS, page=page) for page in products.PAGES
    )
    what = f"List of products: time for page {products.PAGES[-1]:,}, compared with page 1"
    yield Goal(what, ratios(last, first), 1.3)
    yield from _of_imports(results)
    yield from _of_one_process(results)
    yield from _of_the_worker(results)
    sizes = growth.figures("growth", "sessions")
    most, least = int(max(sizes)), int(min(sizes))
    many, few = (
        growth.figures("growth", "cpu_seconds_per_thousand", sessions=size, connections=16)
        for size in (most, least)
    )
    what = f"CPU time of add-card with {most:,} sessions, compared with {least:,}"
    yield Goal(what, ratios(many, few), 1.2)


def _loads(
    results: Results, figure: str, server: str, connections: int = 16, section: str = "add_card"
) -> list[float]:
    where: dict[str, str | int] = {
        "server": server,
        "connections": connections,
        "processes": 1,
        "database": SQLITE,
    }
    return results.figures(section, figure, **where)


def _of_add_card(results: Results) -> Iterator[Goal]:
    ours, flask, floor = (_loads(results, "per_second", each) for each in (OURS, FLASK, FLOOR))
    what = f"{OURS}: throughput with 16 connections, compared with {FLASK}"
    yield Goal(what, ratios(ours, flask), 4, at_least=True)
    p99 = [_loads(results, "p99_ms", each) for each in (OURS, FLASK)]
    yield Goal(
        f"{OURS}: 99th percentile with 16 connections, compared with {FLASK}", ratios(*p99), 0.1
    )
    what = f"{OURS}: throughput with 16 connections, compared with the {FLOOR}"
    yield Goal(what, ratios(ours, floor), 0.65, at_least=True)
    at_64 = ratios(_loads(results, "per_second", OURS, 64), ours)
    yield Goal(
        f"{OURS}: throughput with 64 connections, compared with 16", at_64, 1.0, at_least=True
    )
    failed = [sum(_loads(results, "failed", OURS, 64))]
    yield Goal(f"{OURS}: failed requests with 64 connections, in all rounds", failed, 0, "", 0)


def _of_serve(results: Results, *, has_burner: bool) -> Iterator[Goal]:
    section = "beside_burner" if has_burner else "add_card"
    where = ", beside a burner" * has_burner
    at_16, at_64 = (
        _loads(results, "per_second", ON_WAITRESS, count, section) for count in (16, 64)
    )
    for count, each in ((16, at_16), (64, at_64)):
        what = f"{ON_WAITRESS}: throughput with {count} connections, compared with {FLASK}{where}"
        flask = _loads(results, "per_second", FLASK, count, section)
        yield Goal(what, ratios(each, flask), 3, at_least=True)
    what = f"{ON_WAITRESS}: throughput with 64 connections, compared with 16{where}"
    yield Goal(what, ratios(at_64, at_16), 0.85, at_least=True)
    p99 = _loads(results, "p99_ms", ON_WAITRESS, 64, section)
    # If the connections were served one at a time, each would wait this long.
    turns_ms = [1000 * 64 / per_second for per_second in at_64]
    what = (
        f"{ON_WAITRESS}: 99th percentile with 64 connections, "
        f"compared with serving one at a time{where}"
    )
    yield Goal(what, ratios(p99, turns_ms), 1.2)
    longest = results.figures("pipelines", "longest_seconds", has_burner=has_burner)
    others = f"{pipeline.CLIENTS} others pipeline"
    what = f"{ON_WAITRESS}: longest wait of a new client while {others}{where}"
    yield Goal(what, longest, 1, " s")


def _of_imports(results: Results) -> Iterator[Goal]:
    def figures(figure: str, how: str, rows: int = guests.ROWS) -> list[float]:
        return results.figures("imports", figure, how=how, rows=rows)

    seconds = ratios(figures("seconds", guests.OURS), figures("seconds", guests.SHELL))
    what = f"Time to validate and import {guests.ROWS:,} guests, compared with `.import`"
    yield Goal(what, seconds, 8, wanted=4)
    (fewer,) = figures("peak_mb", guests.OURS, guests.FEWER_ROWS)
    what = f"Memory to import {guests.ROWS:,} guests, compared with {guests.FEWER_ROWS:,}"
    yield Goal(what, [each / fewer for each in figures("peak_mb", guests.OURS)], 1.1)


def _of_one_process(results: Results) -> Iterator[Goal]:
    seconds, memory_mb = (
        results.figures("starts", figure, server=ON_WAITRESS) for figure in ("seconds", "memory_mb")
    )
    what = f"{ON_WAITRESS}: time from the start to the first response"
    yield Goal(what, seconds, 1.0, " s", wanted=0.5)
    yield Goal(f"{ON_WAITRESS}: memory after the start", memory_mb, 100, " MB", 0)
    _, warm, last = results.figures("memory", "memory_mb")
    # Python's allocator requests and frees memory in units of a megabyte.
    yield Goal(f"{OURS}: memory that 100,000 requests add", [last - warm], 1, " MB", 1)


def _of_the_worker(results: Results) -> Iterator[Goal]:
    for database, workers, target in ((SQLITE, 1, 20), (POSTGRESQL, 1, 20), (POSTGRESQL, 2, 40)):
        per_second = results.figures(
            "settlements", "per_second", database=database, workers=workers
        )
        what = f"Sessions settled per second on {database}, {workers} worker{'s' * (workers > 1)}"
        yield Goal(what, per_second, target, "", 1, at_least=True)
    seconds = [each / 1000 for each in results.figures("settled", "p99_ms")]
    entering = "Time from entering a card (without a browser) to storing it"
    yield Goal(f"{entering}, at 10 cards per second: 99th percentile", seconds, 2, " s")
