"""Measures how long new clients of `cardonfile serve` wait while others pipeline requests."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Final

from tests.benchmarks.burner import burner_on_two_cores
from tests.benchmarks.load import memory_mb
from tests.benchmarks.results import Row
from tests.benchmarks.servers import ON_WAITRESS, Sample, make_server

CLIENTS: Final = 100
REQUESTS: Final = 240
"""How many requests each pipelining client sends without waiting for a response."""
GAP_SECONDS: Final = 0.1
"""How long after one new client the next new client connects."""

_GET: Final = b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"
_STATUS: Final = b"HTTP/1.1 200 "


def measure(
    folder: Path, sample: Sample, *, rounds: int, say: Callable[[str], None]
) -> Iterator[Row]:
    """Measure the waits of new clients while others pipeline, with and without a burner."""
    server = make_server(ON_WAITRESS, folder / "pipeline", sample)
    for has_burner in (False, True):
        with burner_on_two_cores() if has_burner else nullcontext(), server.running():
            for number in range(1, rounds + 1):
                say(f"pipelines{' beside a burner' * has_burner}, round {number} of {rounds}")
                waits = asyncio.run(_waits_of_new_clients(server.port))
                yield {
                    "has_burner": has_burner,
                    "round": number,
                    "new_clients": len(waits),
                    "longest_seconds": round(max(waits), 3),
                    "memory_mb": memory_mb(server.pid),
                }


async def _waits_of_new_clients(port: int) -> list[float]:
    """Return how long each new client waited for its response, in seconds."""
    pipelines = asyncio.gather(*(_ask(port, REQUESTS) for _ in range(CLIENTS)))
    waits: list[float] = []
    while not pipelines.done():
        await asyncio.sleep(GAP_SECONDS)
        began = time.perf_counter()
        await _ask(port, 1)
        waits.append(time.perf_counter() - began)
    await pipelines
    return waits


async def _ask(port: int, times: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    with closing(writer):
        writer.write(_GET * times)
        for _ in range(times):
            await reader.readuntil(_STATUS)
