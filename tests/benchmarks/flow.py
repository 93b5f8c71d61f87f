"""The whole flow over HTTP, from add-card to the stored card, with the fake PSP as the guest's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import msgspec
from msgspec import Struct

from tests.benchmarks.add_card import POSTGRESQL, Setting, start
from tests.benchmarks.load import WARM_UP_SECONDS, run_wrk
from tests.benchmarks.results import Flow
from tests.benchmarks.servers import OURS, Sample, Server

GUESTS_AT_ONCE: Final = 8

SETTINGS: Final = (
    Setting(server=OURS),
    Setting(server=OURS, processes=2),
    Setting(server=OURS, database=POSTGRESQL),
)


class Seen(Struct, frozen=True):
    """What wrk saw."""

    stored: int
    failed: int
    seconds: float


def measure(
    folder: Path,
    sample: Sample,
    postgresql: str,
    *,
    rounds: int,
    seconds: int,
    say: Callable[[str], None],
) -> Iterator[Flow]:
    """Have guests add cards, one after the other at each of some connections."""
    with ExitStack() as stack:
        servers = [
            (setting, start(setting, stack, folder / f"flow-{number}", sample, postgresql))
            for number, setting in enumerate(SETTINGS)
        ]
        for _, server in servers:
            add_flows(server, seconds=WARM_UP_SECONDS)
        for number in range(1, rounds + 1):
            say(f"whole flow, round {number} of {rounds}")
            for setting, server in servers:
                seen = add_flows(server, seconds=seconds)
                yield Flow(
                    database=setting.database,
                    processes=setting.processes,
                    round=number,
                    per_second=seen.stored / seen.seconds,
                    failed=seen.failed,
                )


def add_flows(server: Server, *, seconds: int) -> Seen:
    """Have guests go through the flow for a while."""
    sample = server.sample
    line = run_wrk(
        server,
        "flow.lua",
        *(server.token, sample.center_id, str(sample.guests)),
        connections=GUESTS_AT_ONCE,
        threads=GUESTS_AT_ONCE,
        seconds=seconds,
    )
    return msgspec.json.decode(line, type=Seen)
