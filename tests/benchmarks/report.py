"""Writes `docs/benchmarks.md` from the figures: `python -m tests.benchmarks.report`."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tests.benchmarks import plots
from tests.benchmarks.add_card import CONNECTIONS, POSTGRESQL, SQLITE
from tests.benchmarks.flow import GUESTS_AT_ONCE
from tests.benchmarks.goals import (
    Goal,
    goals,
    grown,
    loads,
    page_ms,
    ratios,
    settled_per_second,
    throughputs,
)
from tests.benchmarks.imports import FEWER_ROWS, ROWS, SHELL
from tests.benchmarks.imports import OURS as OUR_IMPORT
from tests.benchmarks.pages import OFFSET, PAGES
from tests.benchmarks.pages import OURS as OUR_PAGES
from tests.benchmarks.results import (
    FOLDER,
    Growth,
    Load,
    Machine,
    Results,
    read_growth,
    read_results,
)
from tests.benchmarks.servers import (
    ADD_CARD_LIMIT,
    ALL,
    FLASK_THREADS,
    GRANIAN_THREADS,
    GUESTS,
    ON_WAITRESS,
    OURS,
    PEERS,
)
from tests.benchmarks.settlements import CALL_SECONDS, CARDS_A_SECOND, SESSIONS
from tests.benchmarks.settlements import SETTINGS as SETTLEMENTS
from tests.programs import ROOT

PAGE: Final = ROOT / "docs" / "benchmarks.md"
PROFILE: Final = Path(__file__).with_name("profile.md")
"""Written by hand, and included in the page as it is."""

LATENCY_PLOT: Final = "latency.svg"
PAGES_PLOT: Final = "pages.svg"

ENOUGH_ROUNDS: Final = 3
_FEW_ROUNDS: Final = " **So few rounds show only that everything runs.**"

Cells = Sequence[str]


def write() -> Path:
    """Write the page and its plots; return the path of the page from the root."""
    results, growth = read_results(), read_growth()
    PAGE.write_text(page(results, growth))
    draw(results, FOLDER)
    return PAGE.relative_to(ROOT)


def draw(results: Results, folder: Path) -> None:
    """Draw the plots."""
    plots.draw(
        folder / LATENCY_PLOT,
        {
            "median": {name: _latency(results, name, lambda each: each.p50_ms) for name in ALL},
            "99th percentile": {
                name: _latency(results, name, lambda each: each.p99_ms) for name in ALL
            },
        },
        x="connections",
        y="milliseconds",
        ticks=CONNECTIONS,
    )
    plots.draw(
        folder / PAGES_PLOT,
        {
            "10 of 1,000,000 products, total included": {
                how: [(page, statistics.median(page_ms(results, how, page))) for page in PAGES]
                for how in (OUR_PAGES, OFFSET)
            }
        },
        x="page",
        y="milliseconds",
        ticks=PAGES,
    )


def _latency(results: Results, server: str, of: Callable[[Load], float]) -> plots.Line:
    seen = {
        connections: [
            of(each) for each in loads(results, server, connections=connections) if each.answers
        ]
        for connections in CONNECTIONS
    }
    return [(connections, statistics.median(each)) for connections, each in seen.items() if each]


def page(results: Results, growth: Growth | None) -> str:
    """Return the text of the page."""
    parts = [
        f"""\
# Benchmarks

What add-card, lists, imports and the start cost, compared with programs that do the same work on the same machine. The tables
and marks are computed from the measurements in [results.json](benchmarks/results.json) and
[growth.json](benchmarks/growth.json); [where the time goes](#where-the-time-goes) is written by hand.

```sh
make bench
make bench-growth
```

The first takes about 20 minutes; the second about 10, and 15 GB of disk. Both need Linux, `wrk` and `sqlite3`. `ROUNDS=9` and
`SECONDS=10` set how many rounds and how long.

Figures are medians of {results.rounds} rounds; each round measures every program in turn. Ratios are computed within a round; brackets
contain the lowest and the highest.{_FEW_ROUNDS if results.rounds < ENOUGH_ROUNDS else ""}

## Goals

{_table(["What", "Target", "Wanted", "Measured", "Met"], map(_goal, goals(results, growth)))}

{"" if growth else _NO_GROWTH}## What is compared

Each program authenticates the caller by the hash of a token, looks up center and guest, validates the request, stores a session
under a random id, commits, and returns the same JSON. Each has {GUESTS:,} guests, one center, and SQLite {results.machine.versions["SQLite"]} with
`journal_mode=WAL` and `synchronous=FULL`. PostgreSQL runs on the same machine with `fsync` and `synchronous_commit` on.

| Name | What it is |
|---|---|
| {OURS} | granian with {GRANIAN_THREADS} blocking threads, and `cardonfile work`: all checks, access log to a file, fake PSP, rate limit on (`CARDONFILE_ADD_CARD_LIMIT={ADD_CARD_LIMIT}`). |
| {ON_WAITRESS} | `cardonfile serve` with the same settings. |
| FastAPI | uvicorn with uvloop and httptools, `def` endpoint, session as a dependency, pydantic models; access log to a file, its default. |
| Flask | gunicorn with {FLASK_THREADS} threads, its best number, and scoped sessions; no access log, its default. |
| …, write lock | The same with a `threading.Lock` around writes, so that SQLite's busy handler does not decide the comparison. FastAPI has 40 connections here, one per thread. |
| floor | A Falcon responder on granian with {GRANIAN_THREADS} blocking threads, plain `sqlite3` and a write lock: lookups and insert, no validation, no log. |

The peers are one file each in `tests/benchmarks/peers/`, with SQLAlchemy's default pool of up to 15 connections. FastAPI has 40
threads: with more than 40 requests at once it may deadlock, with all threads waiting for a connection and the requests that
have one waiting for a thread.

## The machine

{_machine(results.machine)}

## Add-card

One process, SQLite. `wrk` sends a connection's next request after the last response. CPU is the server's, in seconds per 1,000
requests. "Failed" counts, over all rounds, other statuses than 2xx, lost connections and responses after more than 2 seconds;
they are not in the throughput.

{_table(["Server", "Connections", "A second", "Median", "99th percentile", "CPU", "Failed"], _loads(results, CONNECTIONS))}

![Latency by load](benchmarks/{LATENCY_PLOT})

{OURS} against each, at 16 connections:

{_table(["Against", "Throughput", "99th percentile", "CPU"], _against(results))}

## More processes, and PostgreSQL

16 connections. `wrk` and PostgreSQL share the cores with the servers; their CPU is not counted.

{_table(["Server", "Database", "Processes", "A second", "Median", "99th percentile", "CPU", "Failed"], _settings(results))}

{_table(["", "Throughput", "99th percentile"], _changes(results))}

## The whole flow

From add-card to the stored card on granian: five requests, with the guest's page and form, and the fake PSP in the same
process. {GUESTS_AT_ONCE} guests at once.

{_table(["Database", "Processes", "Cards a second", "Failed"], _flows(results))}

## The background worker

{SESSIONS} cards are typed at a PSP whose calls take {CALL_SECONDS:.1f} s, all browsers are closed, and `cardonfile work` settles.

{_table(["Database", "Workers", "Sessions a second"], _settlements(results))}

With {CARDS_A_SECOND} cards a second at the fake PSP and no returning browser, a card is stored {results.settled.p50_ms:.0f} ms after it was typed (median;
99th percentile of {results.settled.cards}: {results.settled.p99_ms:.0f} ms).

## Pages of products

10 of 1,000,000 products and their total, without HTTP, from the same SQLite file; in milliseconds.

{_table(["Page", OUR_PAGES, OFFSET, "Ratio"], _pages(results))}

![Cost by page number](benchmarks/{PAGES_PLOT})

## Import

Guests from a CSV file into an empty table. `cardonfile import` validates each row; `.import` of SQLite's shell does not.

{_table(["How", "Rows", "Seconds", "Peak memory"], _imports(results))}

## Start and memory

From the start of the process to its first add-card, and memory (RSS, all its processes) a second later. cardonfile and the floor
run from an environment with the dependencies of the service alone, as `make install` makes it.

{_table(["Server", "First answer", "Memory at rest"], _starts(results))}

{OURS} under load: {", ".join(f"{each.memory_mb:.0f} MB after {each.requests:,} requests" for each in results.memory)}.
""",
        _growth(growth) if growth else "",
        PROFILE.read_text() if PROFILE.exists() else "",
        _CAVEATS,
    ]
    return "\n".join(part for part in parts if part).replace("\n\n\n", "\n\n")


_NO_GROWTH: Final = "Growth has not been measured yet: run `make bench-growth`.\n\n"

_CAVEATS: Final = """\
## What the figures do not say

- Load, servers and databases share one machine. A network between them would hide much of the difference.
- The load is closed: a slow server gets fewer requests. Percentiles are those of `wrk`.
- The peers have one route. What a real service would log, limit and check besides is not in their figures.
- On a disk that syncs more slowly, all are closer to each other at one connection.
- PostgreSQL has its default settings.
"""


def _growth(growth: Growth) -> str:
    sizes = sorted({each.sessions for each in growth.add_card})
    rows = [
        [
            f"{size:,}",
            f"{growth.database_mb[str(size)]:,.0f} MB",
            str(connections),
            *_figures(grown(growth, size, connections)),
        ]
        for connections in sorted({each.connections for each in growth.add_card})
        for size in sizes
    ]
    header = ["Sessions", "Database", "Connections", "A second", "Median", "99th percentile"]
    return f"""\
## Growth

Add-card with many stored sessions, one process, SQLite. One session in four has collected a card. {growth.rounds} rounds, on
{growth.machine.processor}, {growth.machine.cores} cores: not to be compared with the tables above if the machine is another.

{_table([*header, "CPU", "Failed"], rows)}
"""


def _table(header: Cells, rows: Iterator[Cells] | Sequence[Cells]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---")


def _goal(goal: Goal) -> Cells:
    def bound(target: float | None) -> str:
        if target is None:
            return ""
        return f"at {'least' if goal.at_least else 'most'} {target:g}{goal.unit}"

    met = "yes" if goal.reaches(goal.target) else "**no**"
    if goal.wanted is not None and goal.reaches(goal.wanted):
        met = "yes, as wanted"
    return [
        goal.what,
        bound(goal.target),
        bound(goal.wanted),
        _spread(goal.measured, goal.decimals, goal.unit),
        met,
    ]


def _spread(values: Sequence[float], decimals: int = 2, unit: str = "×") -> str:
    middle = f"{statistics.median(values):.{decimals}f}{unit}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):.{decimals}f}–{max(values):.{decimals}f})"


def _machine(machine: Machine) -> str:
    versions = ", ".join(f"{name} {number}" for name, number in machine.versions.items())
    return (
        f"{machine.processor}, {machine.cores} cores, {machine.memory_gb:.0f} GB of memory, "
        f"{machine.kernel}, {machine.file_system}; the disk keeps 4 kB in {machine.sync_ms} ms "
        f"(`fdatasync`).\n\n{versions}."
    )


def _figures(seen: Sequence[Load]) -> Cells:
    answered = [each for each in seen if each.answers]
    return [
        f"{statistics.median(throughputs(seen)):,.0f}",
        _middle([each.p50_ms for each in answered], 2, " ms"),
        _middle([each.p99_ms for each in answered], 1, " ms"),
        _middle([each.cpu_seconds_per_thousand for each in answered], 2, " s"),
        _failed(seen),
    ]


def _failed(seen: Sequence[Load]) -> str:
    count = f"{sum(each.refused + each.cut_off for each in seen):,}"
    # wrk does not count requests that are still waiting when it ends.
    silent = sum(not each.answers for each in seen)
    return f"{count}; {silent} of {len(seen)} rounds without an answer" if silent else count


def _middle(values: Sequence[float], decimals: int, unit: str) -> str:
    return f"{statistics.median(values):.{decimals}f}{unit}" if values else "no answer"


def _loads(results: Results, connections: Sequence[int]) -> Iterator[Cells]:
    for count in connections:
        for name in ALL:
            yield [name, str(count), *_figures(loads(results, name, connections=count))]


def _against(results: Results) -> Iterator[Cells]:
    ours = loads(results, OURS)
    for name in ALL:
        if name == OURS:
            continue
        theirs = loads(results, name)
        yield [
            name,
            _spread(ratios(throughputs(ours), throughputs(theirs))),
            _spread(_p99_ratios(ours, theirs)),
            _spread(
                ratios(
                    [each.cpu_seconds_per_thousand for each in ours],
                    [each.cpu_seconds_per_thousand for each in theirs],
                )
            ),
        ]


def _p99_ratios(these: Sequence[Load], those: Sequence[Load]) -> Sequence[float]:
    return ratios([each.p99_ms for each in these], [each.p99_ms for each in those])


def _settings(results: Results) -> Iterator[Cells]:
    for database in (SQLITE, POSTGRESQL):
        for processes in (1, 2):
            for name in (OURS, *PEERS):
                seen = loads(results, name, processes=processes, database=database)
                yield [name, database, str(processes), *_figures(seen)]


def _changes(results: Results) -> Iterator[Cells]:
    one = loads(results, OURS)
    on_postgresql = loads(results, OURS, database=POSTGRESQL)
    two_on_postgresql = loads(results, OURS, database=POSTGRESQL, processes=2)
    for what, these, those in (
        ("two processes against one, SQLite", loads(results, OURS, processes=2), one),
        ("two processes against one, PostgreSQL", two_on_postgresql, on_postgresql),
        ("PostgreSQL against SQLite, one process", on_postgresql, one),
    ):
        yield [
            f"{OURS}, {what}",
            _spread(ratios(throughputs(these), throughputs(those))),
            _spread(_p99_ratios(these, those)),
        ]


def _flows(results: Results) -> Iterator[Cells]:
    for database, processes in dict.fromkeys(
        (each.database, each.processes) for each in results.flows
    ):
        seen = [
            each
            for each in results.flows
            if (each.database, each.processes) == (database, processes)
        ]
        yield [
            database,
            str(processes),
            _spread([each.per_second for each in seen], 0, ""),
            str(sum(each.failed for each in seen)),
        ]


def _settlements(results: Results) -> Iterator[Cells]:
    for database, workers in SETTLEMENTS:
        yield [
            database,
            str(workers),
            _spread(settled_per_second(results, database, workers), 1, ""),
        ]


def _pages(results: Results) -> Iterator[Cells]:
    for number in PAGES:
        ours, theirs = (page_ms(results, how, number) for how in (OUR_PAGES, OFFSET))
        yield [
            f"{number:,}",
            f"{statistics.median(ours):.3f}",
            f"{statistics.median(theirs):.1f}",
            _spread(ratios(theirs, ours), 0),
        ]


def _imports(results: Results) -> Iterator[Cells]:
    for rows in (FEWER_ROWS, ROWS):
        for how in (OUR_IMPORT, SHELL):
            seen = [each for each in results.imports if (each.how, each.rows) == (how, rows)]
            yield [
                f"`{how}`",
                f"{rows:,}",
                _spread([each.seconds for each in seen], 2, ""),
                f"{max(each.peak_mb for each in seen):.0f} MB",
            ]


def _starts(results: Results) -> Iterator[Cells]:
    for name in dict.fromkeys(each.server for each in results.starts):
        seen = [each for each in results.starts if each.server == name]
        yield [
            name,
            _spread([each.seconds for each in seen], 2, " s"),
            f"{statistics.median(each.memory_mb for each in seen):.0f} MB",
        ]


if __name__ == "__main__":
    click.echo(write())
