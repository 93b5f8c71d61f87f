"""Writes `docs/benchmarks.md` from the figures: `python -m tests.benchmarks.report`."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from tests.benchmarks import worker
from tests.benchmarks.add_card import CONNECTIONS, SETTINGS
from tests.benchmarks.goals import Goal, goals
from tests.benchmarks.guests import OURS as OUR_IMPORT
from tests.benchmarks.guests import ROWS, SHELL
from tests.benchmarks.products import OFFSET, PAGES
from tests.benchmarks.products import OURS as OUR_PAGES
from tests.benchmarks.results import GROWTH, PROCESSES, RESULTS, Machine, Results, read
from tests.benchmarks.servers import ALL, SQLITE
from tests.programs import ROOT

PAGE: Final = ROOT / "docs" / "benchmarks.md"
BLOCK: Final = re.compile(r"(<!--(\w+)-->\n).*?(<!--end-->)", re.DOTALL)

ENOUGH_ROUNDS: Final = 3

Cells = Sequence[str]
Where = dict[str, str | int]

_LOAD: Final = ("Requests per second", "99th percentile, ms", "CPU, s")


def write() -> Path:
    """Write the figures into the page. Return the path of the page, relative to the root."""
    results, growth, processes = read(RESULTS), read(GROWTH), read(PROCESSES)
    blocks = {
        "rounds": _rounds(results, growth),
        "goals": _table(["What", "Target", "Measured"], map(_goal, goals(results, growth))),
        "machine": _machine(results.machine),
        "loads": _table(["Server", "Connections", *_LOAD], _loads(results)),
        "settings": _table(["Server", "Database", "Processes", *_LOAD], _settings(results)),
        "processes": _table(
            ["Processes", "Add-card requests", "Sessions settled", "Events sent"],
            _processes(processes),
        ),
        "their_machine": _machine(processes.machine),
        "flows": _table(["Database", "Processes", "Cards per second"], _flows(results)),
        "pages": _table(["Page", "cardonfile", OFFSET], _pages(results)),
        "imports": _table(["How", "Seconds", "Peak memory, MB"], _imports(results)),
        "starts": _table(["Server", "Time to first response, s", "Memory, MB"], _starts(results)),
        "growth": _table(["Sessions", "Database, MB", *_LOAD], _growth(growth)),
    }
    filled = BLOCK.sub(lambda each: f"{each[1]}{blocks[each[2]]}\n{each[3]}", PAGE.read_text())
    PAGE.write_text(filled)
    return PAGE.relative_to(ROOT)


def _rounds(results: Results, growth: Results) -> str:
    few = " **So few rounds show only that everything runs.**" * (results.rounds < ENOUGH_ROUNDS)
    return f"There were {results.rounds} rounds, and {growth.rounds} rounds for growth.{few}"


def _growth(growth: Results) -> Iterator[Cells]:
    sizes = sorted({each["sessions"] for each in growth.measured["growth"]})
    for size in (sizes[0], sizes[-1]):
        where = {"sessions": size, "connections": 16}
        database_mb = growth.figures("growth", "database_mb", **where)[0]
        yield [f"{size:,}", f"{database_mb:,.0f}", *_figures(growth, "growth", **where)]


def _table(header: Cells, rows: Iterator[Cells] | Sequence[Cells]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines).replace("| --- ", "|---")


def _goal(goal: Goal) -> Cells:
    target = f"{'≥' if goal.at_least else '≤'} {goal.target:g}{goal.unit}"
    if goal.wanted is not None:
        target += f", ideally {goal.wanted:g}{goal.unit}"
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
        f"{machine.kernel}, {machine.file_system}; the disk syncs 4 kB in {machine.sync_ms} ms "
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
    if silent := responses.count(0):
        rate += f"; {silent} of {len(responses)} rounds without an answer"
    return [rate, show("p99_ms", 1), show("cpu_seconds_per_thousand", 2)]


def _failed(results: Results, section: str, **where: str | int) -> str:
    """Return the number of failed requests in all rounds as text to append to a rate."""
    failed = sum(results.figures(section, "failed", **where))
    return f"; {failed:,.0f} failed" if failed else ""


def _loads(results: Results) -> Iterator[Cells]:
    for count in CONNECTIONS[1:]:
        for name in ALL:
            one = {"processes": 1, "connections": count}
            figures = _figures(results, "add_card", server=name, database=SQLITE, **one)
            yield [name, str(count), *figures]


def _settings(results: Results) -> Iterator[Cells]:
    for setting in SETTINGS:
        if setting.connections == CONNECTIONS:
            continue
        name, database, processes = setting.server, setting.database, setting.processes
        where: Where = {"server": name, "database": database, "processes": processes}
        figures = _figures(results, "add_card", connections=16, **where)
        yield [name, database, str(processes), *figures]


def _processes(results: Results) -> Iterator[Cells]:
    for _, processes in worker.PROCESSES_SETTINGS:
        add_cards = results.figures("add_card", "per_second", processes=processes)
        by_workers = (
            results.figures(section, "per_second", workers=processes)
            for section in ("settlements", "events")
        )
        yield [str(processes), *(_spread(each, 0, "") for each in (add_cards, *by_workers))]


def _flows(results: Results) -> Iterator[Cells]:
    rows = results.measured["flows"]
    for database, processes in dict.fromkeys((row["database"], row["processes"]) for row in rows):
        where = {"database": database, "processes": processes}
        per_second = _spread(results.figures("flows", "per_second", **where), 0, "")
        yield [database, str(processes), per_second + _failed(results, "flows", **where)]


def _pages(results: Results) -> Iterator[Cells]:
    for number in PAGES:
        ours, theirs = (
            statistics.median(results.figures("pages", "ms", how=how, page=number))
            for how in (OUR_PAGES, OFFSET)
        )
        yield [f"{number:,}", f"{ours:.3f}", f"{theirs:.1f}"]


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
