"""Measures, keeps the figures, and writes the page: `python -m tests.benchmarks.run`."""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

import click

from tests.benchmarks import (
    add_card,
    flow,
    growth,
    imports,
    memory,
    pages,
    settlements,
    start,
)
from tests.benchmarks.machine import describe
from tests.benchmarks.report import write
from tests.benchmarks.results import GROWTH, RESULTS, Results, save
from tests.benchmarks.servers import make_sample
from tests.postgresql import own_server

NEEDED: Final = {"wrk": "wrk", "sqlite3": "sqlite3"}
"""Programs, and the packages that bring them."""

SETTLED_SECONDS: Final = 30

GROWTH_BYTES: Final = 15_000_000_000

# Everything that answers runs at once, and each keeps its connections. Commits are synced.
_POSTGRESQL: Final = {"max_connections": "200"}

_began = time.monotonic()


@click.group()
def main() -> None:
    """Measure the service beside others."""
    # Whatever ends it, no server is left behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if not Path("/proc/self/smaps_rollup").exists():
        raise click.ClickException("CPU time and memory are read from /proc, which only Linux has")
    missing = [package for program, package in NEEDED.items() if not shutil.which(program)]
    if missing:
        raise click.ClickException(f"first: apt-get install {' '.join(missing)}")


@main.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.IntRange(1), default=5, show_default=True)
def bench(rounds: int, seconds: int) -> None:
    """Measure all but growth."""
    with _folder() as name:
        folder = Path(name)
        sample = make_sample(folder)
        with own_server(_POSTGRESQL) as server:
            machine = describe(folder, server.url)
            added = list(
                add_card.measure(
                    folder, sample, server.url, rounds=rounds, seconds=seconds, say=_say
                )
            )
            settlements_seen = list(
                settlements.measure(folder, server.url, rounds=rounds, say=_say)
            )
            flows = list(
                flow.measure(folder, sample, server.url, rounds=rounds, seconds=seconds, say=_say)
            )
        results = Results(
            machine=machine,
            rounds=rounds,
            seconds=seconds,
            add_card=added,
            flows=flows,
            pages=list(pages.measure(folder, rounds=rounds, say=_say)),
            imports=list(imports.measure(folder, rounds=rounds, say=_say)),
            starts=list(start.measure(folder, sample, rounds=rounds, say=_say)),
            memory=list(memory.measure(folder, sample, say=_say)),
            settlements=settlements_seen,
            settled=settlements.measure_delay(folder, seconds=SETTLED_SECONDS, say=_say),
        )
    save(results, RESULTS)
    _say(f"written: {write()}")


@main.command("growth")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--seconds", type=click.IntRange(1), default=5, show_default=True)
def grow(rounds: int, seconds: int) -> None:
    """Measure add-card with up to ten million sessions."""
    with _folder() as name:
        folder = Path(name)
        if shutil.disk_usage(folder).free < GROWTH_BYTES:
            raise click.ClickException(
                f"{GROWTH_BYTES / 1e9:.0f} GB are needed in the folder for temporary files; "
                "TMPDIR names another"
            )
        sample = make_sample(folder)
        save(growth.measure(folder, sample, rounds=rounds, seconds=seconds, say=_say), GROWTH)
    if RESULTS.exists():
        _say(f"written: {write()}")
    else:
        _say("kept for the page, which `make bench` writes")


def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="bench-")


def _say(what: str) -> None:
    minutes, seconds = divmod(int(time.monotonic() - _began), 60)
    click.echo(f"{minutes:2}:{seconds:02} {what}", err=True)


if __name__ == "__main__":
    sys.exit(main())
