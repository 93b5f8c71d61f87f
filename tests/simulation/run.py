"""Runs the simulation for as long as asked: `python -m tests.simulation.run`."""

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

from tests.simulation.simulation import SHARES, Simulation

STEPS_A_RUN: Final = 80
"""After so many steps a run comes to its end, and the next begins with an empty installation."""

_MEMORY: Final = Path("/dev/shm")  # noqa: S108 - a folder of a random name is made in it


def folder_in_memory() -> tempfile.TemporaryDirectory[str]:
    """Give a folder whose files are never synced to a disk, where the machine has one.

    A process that is killed leaves what it wrote, synced or not; that commits are synced is
    tested elsewhere.
    """
    return tempfile.TemporaryDirectory(dir=_MEMORY if _MEMORY.is_dir() else None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """What came of a run: its story, and what broke, if anything did."""

    story: str
    broken: Exception | None
    steps: int


def run(seed: int, steps: Sequence[int]) -> Run:
    """Do these steps of the seed's run, and come to the end.

    Each step has its own choices, so that the others stay as they are when one is left out.
    """
    weights = Random(f"{seed} weights")  # a run in which all is as likely as ever finds less
    shares = [share * weights.choice((1, 2, 4)) for share in SHARES.values()]
    with folder_in_memory() as folder, closing(Simulation(Path(folder), seed)) as simulation:
        broken = None
        try:
            for step in steps:
                choices = Random(f"{seed} {step}")
                (rule,) = choices.choices(list(SHARES), shares)
                simulation.take(rule, choices, step)
            simulation.end(Random(f"{seed} end"))
        except Exception as fault:  # noqa: BLE001 - whatever it is, the story leads to it
            broken = fault
        return Run(story=simulation.story(broken), broken=broken, steps=simulation.steps)


def shortest(seed: int, failed: Run, steps: Sequence[int]) -> tuple[Run, Sequence[int]]:
    """Leave out what is not needed to break the same thing."""
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
@click.option("--seed", default=1, show_default=True, help="The first run has this seed.")
@click.option("--steps", default=20_000, show_default=True, help="How many to do in all.")
@click.option("--only", default="", help="Of that one run, only these steps: 3,5,8.")
def main(seed: int, steps: int, only: str) -> None:
    """Simulate the service; stop at the first thing that must not be."""
    if only:
        found = run(seed, [int(number) for number in only.split(",")])
        click.echo(found.story)
        raise SystemExit(found.broken is not None)
    started_at = time.perf_counter()
    done = 0
    runs = 0
    while done < steps:
        planned = range(1, min(STEPS_A_RUN, steps - done) + 1)
        found = run(seed + runs, planned)
        runs += 1
        done += found.steps
        if found.broken is not None:
            seconds = time.perf_counter() - started_at
            found, needed = shortest(seed + runs - 1, found, planned)
            click.echo(found.story)
            numbers = ",".join(map(str, needed))
            click.echo(
                f"\nBroken after {done} steps and {seconds:.1f} s. To see it again:\n"
                f"  make simulate SEED={seed + runs - 1} ONLY={numbers}"
            )
            raise SystemExit(1)
    seconds = time.perf_counter() - started_at
    click.echo(
        f"{done} steps in {runs} runs from seed {seed}: nothing broke. "
        f"{done / seconds:.0f} steps per second."
    )


if __name__ == "__main__":
    main()
