"""Runs the benchmarks and writes figures and page: `python -m tests.benchmarks.run`."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, ParamSpec

import click
import structlog

from tests.benchmarks import add_card, growth, guests, pipeline, products, worker
from tests.benchmarks.goals import goals
from tests.benchmarks.machine import describe
from tests.benchmarks.report import write
from tests.benchmarks.results import GROWTH, PROCESSES, RESULTS, Results, read, save
from tests.benchmarks.servers import make_sample
from tests.postgresql import own_server

NEEDED: Final = ("wrk", "sqlite3")
"""Programs that must be installed. The packages have the same names."""

GROWTH_BYTES: Final = 15_000_000_000

_began = time.monotonic()

Parameters = ParamSpec("Parameters")


@click.group()
def main() -> None:
    """Compare the service with other programs."""
    # Stop all servers even when this program is terminated.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # Sessions to settle are made in this process, with a line for each step.
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    if not Path("/proc/self/smaps_rollup").exists():
        raise click.ClickException("CPU time and memory are read from /proc, which only Linux has")
    missing = [program for program in NEEDED if not shutil.which(program)]
    if missing:
        raise click.ClickException(f"first: apt-get install {' '.join(missing)}")


def _with_length(command: Callable[Parameters, None]) -> Callable[Parameters, None]:
    for name in ("--rounds", "--seconds"):
        command = click.option(name, type=click.IntRange(1), default=5, show_default=True)(command)
    return command


@main.command()
@_with_length
def bench(rounds: int, seconds: int) -> None:
    """Run all benchmarks except those of growth and of several processes."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        sample = make_sample(folder)
        # All servers run at once, and each keeps its connections.
        with own_server({"max_connections": "200"}) as server:
            machine = describe(folder, server.url)
            loaded = {"rounds": rounds, "seconds": seconds}
            measured = {
                **{
                    section: add_card.measure(
                        *(folder, sample, server.url),
                        rounds=rounds,
                        seconds=seconds,
                        settings=settings,
                        has_burner=section == "beside_burner",
                        say=_say,
                    )
                    for section, settings in (
                        ("add_card", add_card.SETTINGS),
                        ("beside_burner", add_card.BURNER_SETTINGS),
                    )
                },
                "pipelines": pipeline.measure(folder, sample, rounds=rounds, say=_say),
                "settlements": worker.measure(folder, server.url, rounds=rounds, say=_say),
                "flows": add_card.measure_flow(folder, sample, server.url, **loaded, say=_say),
                "metrics": add_card.measure_metrics(folder, sample, **loaded, say=_say),
                "pages": products.measure(folder, rounds=rounds, say=_say),
                "imports": guests.measure(folder, rounds=rounds, say=_say),
                "starts": add_card.measure_start(folder, sample, rounds=rounds, say=_say),
                "memory": add_card.measure_memory(folder, sample, say=_say),
                "settled": worker.measure_delay(folder, say=_say),
            }
            rows = {section: list(section_rows) for section, section_rows in measured.items()}
    results = Results(machine=machine, rounds=rounds, seconds=seconds, measured=rows)
    save(results, RESULTS)
    _say(f"written: {write()}")
    for goal in goals(results, read(GROWTH)):
        if not goal.reaches(goal.target):
            _say(f"missed: {goal.what}")


@main.command()
@_with_length
def processes(rounds: int, seconds: int) -> None:
    """Measure one, two and four processes on one PostgreSQL."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with own_server({"max_connections": "200"}) as server:
            measured = {
                "add_card": add_card.measure(
                    *(folder, make_sample(folder), server.url),
                    rounds=rounds,
                    seconds=seconds,
                    settings=add_card.PROCESSES_SETTINGS,
                    say=_say,
                ),
                **{
                    section: worker.measure(
                        *(folder, server.url),
                        rounds=rounds,
                        settings=worker.PROCESSES_SETTINGS,
                        has_events=section == "events",
                        say=_say,
                    )
                    for section in ("settlements", "events")
                },
            }
            rows = {section: list(section_rows) for section, section_rows in measured.items()}
            machine = describe(folder, server.url)
    save(Results(machine=machine, rounds=rounds, seconds=seconds, measured=rows), PROCESSES)
    _say(f"written: {write()}")


@main.command("growth")
@_with_length
def grow(rounds: int, seconds: int) -> None:
    """Run the growth benchmark: add-card with up to ten million sessions."""
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < GROWTH_BYTES:
            raise click.ClickException(
                f"{GROWTH_BYTES / 1e9:.0f} GB must be free in the folder for temporary files; "
                "set TMPDIR to use another folder"
            )
        rows = list(
            growth.measure(folder, make_sample(folder), rounds=rounds, seconds=seconds, say=_say)
        )
        machine = describe(folder)
    save(
        Results(machine=machine, rounds=rounds, seconds=seconds, measured={"growth": rows}), GROWTH
    )
    _say(f"written: {write()}")


def _say(what: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _began), 60)
    click.echo(f"{minutes:2}:{seconds:02} {what}", err=True)


if __name__ == "__main__":
    sys.exit(main())
