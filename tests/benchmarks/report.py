"""Writes `docs/benchmarks.md` from the figures: `python -m tests.benchmarks.report`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tests.benchmarks.add_card import CONNECTIONS
from tests.benchmarks.goals import Goal, goals
from tests.benchmarks.guests import OURS as OUR_IMPORT
from tests.benchmarks.guests import ROWS, SHELL
from tests.benchmarks.load import GUESTS_AT_ONCE
from tests.benchmarks.pipeline import REQUESTS
from tests.benchmarks.products import OFFSET, PAGES
from tests.benchmarks.products import OURS as OUR_PAGES
from tests.benchmarks.results import GROWTH, RESULTS, Machine, Results, read
from tests.benchmarks.servers import (
    ALL,
    FLASK,
    FLASK_THREADS,
    GRANIAN_THREADS,
    GUESTS,
    ON_WAITRESS,
    OURS,
    POSTGRESQL,
    SQLITE,
    WRITE_LIMIT,
)
from tests.benchmarks.worker import CALL_SECONDS, SESSIONS
from tests.programs import ROOT

PAGE: Final = ROOT / "docs" / "benchmarks.md"

ENOUGH_ROUNDS: Final = 3
_FEW_ROUNDS: Final = " **So few rounds show only that everything runs.**"

Cells = Sequence[str]

_LOAD: Final = ("A second", "99th percentile, ms", "CPU, s")


def write() -> Path:
    """Write the page; return its path from the root."""
    PAGE.write_text(page())
    return PAGE.relative_to(ROOT)


def page() -> str:
    """Return the text of the page."""
    results, growth = read(RESULTS), read(GROWTH)
    parts = [
        f"""\
# Benchmarks

What add-card, lists, imports and the start cost, beside programs that do the same work on the same machine, from
[results.json](benchmarks/results.json) and [growth.json](benchmarks/growth.json).

```sh
make bench
make bench-growth
```

They take about 25 and 10 minutes, the second also 15 GB of disk, and need Linux, `wrk` and `sqlite3`.

Figures are medians of {results.rounds} rounds; each round measures every program in turn. Ratios are those within a round; brackets
have the lowest and highest.{_FEW_ROUNDS if results.rounds < ENOUGH_ROUNDS else ""}

## Goals

Throughput is in add-cards a second. **Bold** figures miss their target.

{_table(["What", "Target", "Measured"], map(_goal, goals(results, growth)))}

## What is compared

Each program authenticates the caller by a token's hash, looks up center and guest, stores a session under a random id, commits,
and returns the same JSON. Each has {GUESTS:,} guests, one center, and SQLite {results.machine.versions["SQLite"]} with
`journal_mode=WAL` and `synchronous=FULL`. PostgreSQL runs on the same machine with `fsync` and `synchronous_commit` on.

- **{OURS}**: granian with {GRANIAN_THREADS} blocking threads, and `cardonfile work`: all checks, access log to a file, fake PSP, `CARDONFILE_WRITE_LIMIT={WRITE_LIMIT}`, `CARDONFILE_CARD_TESTING_LIMITS=off`.
- **{ON_WAITRESS}**: `cardonfile serve` with the same settings.
- **Flask**: gunicorn with {FLASK_THREADS} threads, its best number, scoped sessions and a pool of up to 15 connections; no access log.
- **floor**: a Falcon responder on granian with {GRANIAN_THREADS} blocking threads, plain `sqlite3` and a write lock: lookups and insert, no validation, no log.

The last two are in `tests/benchmarks/peers/`. A *burner* is a process that never rests, on the same cores. Clients that
*pipeline* send {REQUESTS} requests each without waiting.

## The machine

{_machine(results.machine)}

## Add-card

One process, SQLite. `wrk` sends a connection's next request after the last response. CPU is the server's, per 1,000 requests.
Failures, if any, stand beside the rate: statuses other than 2xx, lost connections and responses after more than 2 seconds.

{_table(["Server", "Connections", *_LOAD], _loads(results, CONNECTIONS[1:]))}

## More processes, and PostgreSQL

16 connections. The CPU of `wrk` and PostgreSQL, on the same cores, is not counted.

{_table(["Server", "Database", "Processes", *_LOAD], _settings(results))}

## The whole flow

From add-card to the stored card on granian: five requests, the fake PSP in the same process, {GUESTS_AT_ONCE} guests at once.

{_table(["Database", "Processes", "Cards a second"], _flows(results))}

## The background worker

For the [goals](#goals), {SESSIONS} cards are typed at a PSP whose calls take {CALL_SECONDS:.1f} s, all browsers are closed, and
`cardonfile work` settles. How soon a card is stored is measured at the fake PSP.

## Pages of products

10 of 1,000,000 products and their total, without HTTP: {"; ".join(_pages(results))}.

## Import

{ROWS:,} guests from a CSV file into an empty table. `cardonfile import` checks the file first, and pauses so that a running
service can write; SQLite's shell does neither.

{_table(["How", "Seconds", "Peak memory, MB"], _imports(results))}

## Start and memory

From the start of the process to its first add-card, and memory (RSS, all its processes) a second later.

{_table(["Server", "First answer, s", "Memory at rest, MB"], _starts(results))}
""",
        _growth(growth),
        _CAVEATS,
    ]
    return "\n".join(parts)


_CAVEATS: Final = """\
## What the figures do not say

- A network between load, servers and databases would hide much of the difference.
- The load is closed: a slow server gets fewer requests.
- Flask and the floor have one route, and log, limit and check less than a real service.
- PostgreSQL has its default settings.
"""


def _growth(growth: Results) -> str:
    rows = []
    sizes = sorted({each["sessions"] for each in growth.measured["growth"]})
    for size in (sizes[0], sizes[-1]):
        where = {"sessions": size, "connections": 16}
        database_mb = growth.figures("growth", "database_mb", **where)[0]
        figures = _figures(growth, "growth", **where)
        rows.append([f"{size:,}", f"{database_mb:,.0f}", *figures])
    return f"""\
## Growth

Add-card with many stored sessions, one process, SQLite, 16 connections. One session in four has collected a card. {growth.rounds} rounds, not
to be compared with other tables.

{_table(["Sessions", "Database, MB", *_LOAD], rows)}
"""


def _table(header: Cells, rows: Iterator[Cells] | Sequence[Cells]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---")


def _goal(goal: Goal) -> Cells:
    target = f"{'≥' if goal.at_least else '≤'} {goal.target:g}{goal.unit}"
    if goal.wanted is not None:
        target += f", wanted {goal.wanted:g}{goal.unit}"
    measured = _spread(goal.measured, goal.decimals, goal.unit)
    return [goal.what, target, measured if goal.reaches(goal.target) else f"**{measured}**"]


def _spread(values: Sequence[float], decimals: int = 2, unit: str = "×") -> str:
    middle = f"{statistics.median(values):.{decimals}f}{unit}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{decimals}f}–{max(values):.{decimals}f})"


def _machine(machine: Machine) -> str:
    return (
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gb:.0f} GB of memory, "
        f"{machine.kernel}, {machine.file_system}; the disk keeps 4 kB in {machine.sync_ms} ms "
        f"(`fdatasync`). The versions of all programs are in the results."
    )


def _figures(results: Results, section: str, **where: str | int) -> Cells:
    def show(figure: str, decimals: int) -> str:
        values = results.figures(section, figure, **where)
        measured = [value for value, count in zip(values, responses, strict=True) if count]
        return f"{statistics.median(measured):.{decimals}f}" if measured else "no answer"

    responses = results.figures(section, "responses", **where)
    rate = f"{statistics.median(results.figures(section, 'per_second', **where)):,.0f}"
    rate += _failed(results, section, **where)
    # wrk does not count requests that are still waiting when it ends.
    silent = responses.count(0)
    if silent:
        rate += f"; {silent} of {len(responses)} rounds without an answer"
    return [rate, show("p99_ms", 1), show("cpu_seconds_per_thousand", 2)]


def _failed(results: Results, section: str, **where: str | int) -> str:
    """Return what to write beside a rate: how many failed, in all rounds."""
    failed = sum(results.figures(section, "failed", **where))
    return f"; {failed:,.0f} failed" if failed else ""


def _loads(results: Results, connections: Sequence[int]) -> Iterator[Cells]:
    for count in connections:
        for name in ALL:
            one = {"processes": 1, "connections": count}
            figures = _figures(results, "add_card", server=name, database=SQLITE, **one)
            yield [name, str(count), *figures]


def _settings(results: Results) -> Iterator[Cells]:
    for database, processes in ((SQLITE, 2), (POSTGRESQL, 1), (POSTGRESQL, 2)):
        for name in (OURS, FLASK):
            where = {"server": name, "database": database, "processes": processes}
            figures = _figures(results, "add_card", connections=16, **where)
            yield [name, database, str(processes), *figures]


def _flows(results: Results) -> Iterator[Cells]:
    rows = results.measured["flows"]
    for database, processes in dict.fromkeys((row["database"], row["processes"]) for row in rows):
        where = {"database": database, "processes": processes}
        per_second = _spread(results.figures("flows", "per_second", **where), 0, "")
        yield [database, str(processes), per_second + _failed(results, "flows", **where)]


def _pages(results: Results) -> Iterator[str]:
    for number in (PAGES[0], PAGES[-1]):
        ours, theirs = (
            statistics.median(results.figures("pages", "ms", how=how, page=number))
            for how in (OUR_PAGES, OFFSET)
        )
        yield f"page {number:,} takes {ours:.3f} ms, by {OFFSET} {theirs:.1f} ms"


def _imports(results: Results) -> Iterator[Cells]:
    for how in (OUR_IMPORT, SHELL):
        seconds = results.figures("imports", "seconds", how=how, rows=ROWS)
        peak_mb = max(results.figures("imports", "peak_mb", how=how, rows=ROWS))
        yield [f"`{how}`", _spread(seconds, 2, ""), f"{peak_mb:.0f}"]


def _starts(results: Results) -> Iterator[Cells]:
    for name in dict.fromkeys(row["server"] for row in results.measured["starts"]):
        seconds = results.figures("starts", "seconds", server=name)
        memory_mb = statistics.median(results.figures("starts", "memory_mb", server=name))
        yield [name, _spread(seconds, 2, ""), f"{memory_mb:.0f}"]


if __name__ == "__main__":
    click.echo(write())
