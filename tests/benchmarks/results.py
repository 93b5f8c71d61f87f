"""The figures of a run. They are stored in `docs/benchmarks/`, next to the page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
from msgspec import Struct

from tests.programs import ROOT

RESULTS: Final = ROOT / "docs" / "benchmarks" / "results.json"
GROWTH: Final = ROOT / "docs" / "benchmarks" / "growth.json"
PROCESSES: Final = ROOT / "docs" / "benchmarks" / "processes.json"

Row = dict[str, Any]  # the values are text and numbers
"""One measurement: its subject, its round and its figures."""


class Machine(Struct, frozen=True, kw_only=True):
    """The machine of a run. `sync_ms` is how many milliseconds its disk takes to sync 4 kB."""

    processor: str
    cores: int
    memory_gb: float
    kernel: str
    file_system: str
    sync_ms: float
    versions: Mapping[str, str]


class Results(Struct, frozen=True, kw_only=True):
    """All measurements of a run, by section of the page and in the order of the rounds."""

    machine: Machine
    rounds: int
    seconds: int
    measured: Mapping[str, Sequence[Row]]

    def figures(self, section: str, figure: str, **where: str | int) -> list[float]:
        """Return one figure of each round, from the rows that match `where`."""
        rows = self.measured[section]
        return [float(row[figure]) for row in rows if where.items() <= row.items()]


def save(results: Results, path: Path) -> None:
    """Write a file of results."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def read(path: Path) -> Results:
    """Read a file of results."""
    return msgspec.json.decode(path.read_bytes(), type=Results)
