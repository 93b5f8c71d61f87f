"""Runs the simulation: `python -m tests.simulation.run`, or `make simulate`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

import click
import structlog

from tests.simulation.simulation import SHARES, Simulation

STEPS_PER_RUN: Final = 80

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of a random name is made in it


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Return a new folder. It is in memory if the machine has a file system in memory.

    The simulation loses nothing by this, because files keep what a killed process has written, even
    if it was not synced. Other tests show that commits are synced.
    """
    return tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """The result of a run: its story, the exception that ended it, and the number of its steps."""

    story: str
    broken: Exception | None
    steps: int


def run(seed: int, steps: Sequence[int]) -> Run:
    """Do the given steps of the run with this seed. Then let the service finish all work.

    Each step has its own source of random choices, so its choices do not change if other steps are
    left out.
    """
    weights = Random(f"{seed} weights")  # Runs that favour some rules find more.
    shares = [share * weights.choice((1, 2, 4)) for share in SHARES.values()]
    with folder_in_memory() as folder, closing(Simulation(Path(folder), seed)) as simulation:
        broken = None
        try:
            for step in steps:
                choices = Random(f"{seed} {step}")
                (rule,) = choices.choices(list(SHARES), shares)
                simulation.take(rule, choices, step)
            simulation.end(Random(f"{seed} end"))
        except Exception as fault:  # noqa: BLE001 - any exception is a finding
            broken = fault
        return Run(story=simulation.story(broken), broken=broken, steps=simulation.steps)


def shorten(seed: int, failed: Run, steps: Sequence[int]) -> tuple[Run, Sequence[int]]:
    """Leave out steps as long as the same invariant still breaks. Return the rest, with its run."""
    steps = steps[: failed.steps]
    size = len(steps) // 2
    while size:
        start = 0
        while start < len(steps):
            fewer = [*steps[:start], *steps[start + size :]]
            again = run(seed, fewer)
            if again.broken is not None and _kind(again.broken) == _kind(failed.broken):
                failed, steps = again, fewer
            else:
                start += size
        size //= 2
    return failed, steps


def _kind(broken: Exception | None) -> tuple[object, ...]:
    return type(broken), getattr(broken, "invariant", None)


@click.command()
@click.option("--seed", default=1, show_default=True, help="The seed of the first run.")
@click.option("--steps", default=20_000, show_default=True, help="How many steps in all.")
@click.option("--only", default="", help="Do only these steps of one run: 3,5,8.")
def main(seed: int, steps: int, only: str) -> None:
    """Simulate the service until an invariant breaks or all steps are done."""
    structlog.configure(processors=[], logger_factory=structlog.ReturnLoggerFactory())
    if only:
        found = run(seed, [int(number) for number in only.split(",")])
        click.echo(found.story)
        raise SystemExit(found.broken is not None)
    started_at = time.perf_counter()
    done = runs = 0
    while done < steps:
        planned = range(1, min(STEPS_PER_RUN, steps - done) + 1)
        found = run(seed + runs, planned)
        done += found.steps
        if found.broken is not None:
            seconds = time.perf_counter() - started_at
            found, needed = shorten(seed + runs, found, planned)
            click.echo(found.story)
            click.echo(
                f"\nBroken after {done} steps and {seconds:.1f} s. To see it again:\n"
                f"  make simulate SEED={seed + runs} ONLY={','.join(map(str, needed))}"
            )
            raise SystemExit(1)
        runs += 1
    seconds = time.perf_counter() - started_at
    click.echo(
        f"{done} steps in {runs} runs from seed {seed}: nothing broke. "
        f"{done / seconds:.0f} steps per second."
    )


if __name__ == "__main__":
    main()
