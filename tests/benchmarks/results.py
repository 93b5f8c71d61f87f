"""The figures of a run, as they are kept beside the page that is made of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tests.programs import ROOT

FOLDER: Final = ROOT / "docs" / "benchmarks"
RESULTS: Final = FOLDER / "results.json"
GROWTH: Final = FOLDER / "growth.json"


class Machine(Struct, frozen=True, kw_only=True):
    """What was measured on. `sync_ms` is how long the disk takes to keep 4 kB for good."""

    processor: str
    cores: int
    memory_gb: float
    kernel: str
    file_system: str
    sync_ms: float
    versions: Mapping[str, str]


class Load(Struct, frozen=True, kw_only=True):
    """What wrk saw of a server: `answers` of any status, of which `refused` had none of 2xx.

    `cut_off` counts connections that were refused or lost, and answers that took over 2 seconds.
    """

    answers: int
    refused: int
    cut_off: int
    seconds: float
    p50_ms: float
    p99_ms: float
    cpu_seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """How many requests did what was asked."""
        return (self.answers - self.refused) / self.seconds

    @property
    def cpu_seconds_per_thousand(self) -> float:
        """What a thousand answers cost."""
        return 1000 * self.cpu_seconds / max(self.answers, 1)


class AddCard(Struct, frozen=True, kw_only=True):
    """Add-card under a load."""

    server: str
    database: str
    processes: int
    connections: int
    round: int
    load: Load


class Flow(Struct, frozen=True, kw_only=True):
    """The whole flow, from add-card to the stored card."""

    database: str
    processes: int
    round: int
    per_second: float
    failed: int


class Page(Struct, frozen=True, kw_only=True):
    """One page of products, total included."""

    how: str
    page: int
    round: int
    ms: float


class Import(Struct, frozen=True, kw_only=True):
    """An import of guests."""

    how: str
    rows: int
    round: int
    seconds: float
    peak_mb: float


class Start(Struct, frozen=True, kw_only=True):
    """How long after its start a server gave its first answer, and its memory then."""

    server: str
    round: int
    seconds: float
    memory_mb: float


class Memory(Struct, frozen=True, kw_only=True):
    """The memory of the service after so many requests."""

    requests: int
    memory_mb: float


class Settlement(Struct, frozen=True, kw_only=True):
    """Sessions that so many workers settled in a second, with a PSP that is slow."""

    database: str
    workers: int
    round: int
    per_second: float


class Settled(Struct, frozen=True, kw_only=True):
    """How long after a card was typed it was stored, without a browser that came back."""

    cards: int
    p50_ms: float
    p99_ms: float


class Results(Struct, frozen=True, kw_only=True):
    """All that `make bench` measures."""

    machine: Machine
    rounds: int
    seconds: int
    add_card: Sequence[AddCard]
    flows: Sequence[Flow]
    pages: Sequence[Page]
    imports: Sequence[Import]
    starts: Sequence[Start]
    memory: Sequence[Memory]
    settlements: Sequence[Settlement]
    settled: Settled


class Grown(Struct, frozen=True, kw_only=True):
    """Add-card where so many sessions are stored."""

    sessions: int
    connections: int
    round: int
    load: Load


class Growth(Struct, frozen=True, kw_only=True):
    """All that `make bench-growth` measures. Sizes of databases are by number of sessions."""

    machine: Machine
    rounds: int
    seconds: int
    database_mb: Mapping[str, float]
    add_card: Sequence[Grown]


def save(results: Results | Growth, path: Path) -> None:
    """Keep figures."""
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(results), indent=1) + b"\n")


def read_results(path: Path = RESULTS) -> Results:
    """Read what the last `make bench` has kept."""
    return msgspec.json.decode(path.read_bytes(), type=Results)


def read_growth(path: Path = GROWTH) -> Growth | None:
    """Read what the last `make bench-growth` has kept, if there was one."""
    if not path.exists():
        return None
    return msgspec.json.decode(path.read_bytes(), type=Growth)
