"""What a process and those that it started have used, as Linux counts it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")


def cpu_seconds(pid: int) -> float:
    """Give the CPU time of a process and all below it."""
    ticks = 0
    for each in _tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            # The name comes before them, and may hold anything.
            fields = (each / "stat").read_text().rpartition(")")[2].split()
            ticks += int(fields[11]) + int(fields[12])
    return ticks / _TICKS_A_SECOND


def memory_mb(pid: int) -> float:
    """Give the memory of a process and all below it (RSS); what they share counts for each."""
    kilobytes = 0
    for each in _tree(pid):
        with suppress(FileNotFoundError, ProcessLookupError):
            lines = (each / "smaps_rollup").read_text().splitlines()
            kilobytes += next(int(line.split()[1]) for line in lines if line.startswith("Rss:"))
    return kilobytes * 1024 / 1e6


def _tree(pid: int) -> Iterator[Path]:
    process = Path("/proc", str(pid))
    yield process
    for thread in process.glob("task/*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):
            for child in thread.read_text().split():
                yield from _tree(int(child))
