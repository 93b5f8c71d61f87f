"""Load from wrk, and what the server spent on it."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace

from tests.benchmarks.processes import cpu_seconds
from tests.benchmarks.results import Load
from tests.benchmarks.servers import NotServing, Server

WARM_UP_SECONDS: Final = 1

_HERE: Final = Path(__file__).parent


def add_cards(server: Server, *, connections: int, seconds: int) -> Load:
    """Have so many connections add cards, each as fast as it is answered."""
    sample = server.sample
    before = cpu_seconds(server.process.pid)
    line = run_wrk(
        server,
        "add_card.lua",
        *(server.token, sample.center_id, str(sample.guests)),
        connections=connections,
        seconds=seconds,
    )
    spent = cpu_seconds(server.process.pid) - before
    return replace(msgspec.json.decode(line, type=Load), cpu_seconds=round(spent, 2))


def run_wrk(
    server: Server, script: str, *arguments: str, connections: int, seconds: int, threads: int = 1
) -> str:
    """Run wrk with a script of this folder; give the last line that it printed."""
    done = subprocess.run(
        [
            *("wrk", f"--threads={threads}", f"--connections={connections}"),
            *(f"--duration={seconds}s", "--latency", f"--script={_HERE / script}"),
            *(server.url, "--", *arguments),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    lines = done.stdout.splitlines()
    if done.returncode or not lines:
        raise NotServing(f"wrk fails against {server.name}: {done.stderr or done.stdout}")
    return lines[-1]
