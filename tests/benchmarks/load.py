"""Puts load on a server with wrk, and measures the CPU time and memory of the server."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from tests.benchmarks.results import Row
from tests.benchmarks.servers import NotServing, Server

WARM_UP_SECONDS: Final = 1
GUESTS_AT_ONCE: Final = 8

_TICKS_PER_SECOND: Final = os.sysconf("SC_CLK_TCK")


def add_cards(server: Server, *, connections: int, seconds: int) -> Row:
    """Send add-card requests on several connections, each as fast as the server responds."""
    before = cpu_seconds(server.pid)
    seen = _wrk(server, "add_card.lua", connections=connections, seconds=seconds)
    spent = cpu_seconds(server.pid) - before
    responses = seen["responses"]
    return {
        "responses": responses,
        "failed": seen["refused"] + seen["cut_off"],
        "per_second": (responses - seen["refused"]) / seen["seconds"],
        "p50_ms": seen["p50_ms"],
        "p99_ms": seen["p99_ms"],
        "cpu_seconds_per_thousand": 1000 * spent / max(responses, 1),
    }


def add_cards_to_the_end(server: Server, *, seconds: int) -> Row:
    """Simulate guests who add cards, from the add-card request to the stored card."""
    threads = GUESTS_AT_ONCE
    seen = _wrk(server, "flow.lua", connections=threads, threads=threads, seconds=seconds)
    return {"per_second": seen["stored"] / seen["seconds"], "failed": seen["failed"]}


def _wrk(server: Server, script: str, *, connections: int, seconds: int, threads: int = 1) -> Row:
    """Run wrk with a script of this folder. The script prints its figures as the last line."""
    sample = server.sample
    done = subprocess.run(
        [
            *("wrk", f"--threads={threads}", f"--connections={connections}", "--latency"),
            *(f"--duration={seconds}s", f"--script={Path(__file__).with_name(script)}"),
            *(f"http://127.0.0.1:{server.port}", "--"),
            *(server.token, sample.center_id, str(sample.guests)),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise NotServing(f"wrk fails against {server.name}: {done.stderr or done.stdout}")
    figures: Row = json.loads(lines[-1])
    return figures


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process and its descendants."""
    ticks = 0
    for each in _tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The fields follow the name of the process, which may contain any characters.
            fields = (each / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_PER_SECOND


def memory_mb(pid: int) -> float:
    """Return the memory (RSS) of a process and its descendants.

    Memory that several processes share is counted for each of them.
    """
    kilobytes = 0
    for each in _tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = (each / "smaps_rollup").read_text().splitlines()
            kilobytes += next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
    return round(kilobytes * 1024 / 1e6, 1)


def _tree(pid: int) -> Iterator[Path]:
    process = Path("/proc", str(pid))
    yield process
    for thread in process.glob("task/*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in thread.read_text().split():
                yield from _tree(int(child))
