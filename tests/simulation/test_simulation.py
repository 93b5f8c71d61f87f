"""The whole service under control of one seed: whatever comes, what must hold does."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test
from typing_extensions import override

from tests.simulation.run import folder_in_memory, run
from tests.simulation.simulation import SHARES, Simulation

CHOICES = st.randoms(use_true_random=False, note_method_calls=False)


class Machine(RuleBasedStateMachine):
    """A simulation whose every choice is Hypothesis's, so that it finds the shortest story."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = folder_in_memory()
        self._simulation = Simulation(Path(self._folder.name))
        self._is_broken = False

    def happens(self, what: str, choices: Random) -> None:
        """Have one thing happen."""
        try:
            if what:
                self._simulation.take(what, choices)
            else:
                self._simulation.end(choices)
        except Exception as broken:
            self._is_broken = True
            raise AssertionError(self._simulation.story(broken)) from broken

    @override
    def teardown(self) -> None:
        """Have all faults stop, and everything come to its end."""
        try:
            if not self._is_broken:
                self.happens("", Random(1))
        finally:
            self._simulation.close()
            self._folder.cleanup()


def _add_rule(what: str, number: int) -> None:
    def happens(self: Machine, choices: Random) -> None:
        self.happens(what, choices)

    happens.__name__ = f"{what}_{number}"
    setattr(Machine, happens.__name__, rule(choices=CHOICES)(happens))


# Every rule is as likely as any other, so what comes more often stands here several times.
for _what, _share in SHARES.items():
    for _number in range(_share):
        _add_rule(_what, _number)


def test_whatever_happens_the_invariants_hold() -> None:
    run_state_machine_as_test(
        Machine,
        settings=settings(
            max_examples=100,
            stateful_step_count=40,
            derandomize=True,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            phases=[Phase.generate, Phase.shrink],
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.mark.parametrize("seed", range(60))
def test_no_seed_breaks_anything(seed: int) -> None:
    found = run(seed, range(1, 81))
    assert found.broken is None, found.story


def test_a_seed_tells_the_same_story_in_every_process() -> None:
    seed, steps = 5, range(1, 61)
    only = ",".join(map(str, steps))
    there = subprocess.run(
        [sys.executable, "-m", "tests.simulation.run", f"--seed={seed}", f"--only={only}"],
        cwd=Path(__file__).parents[2],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONHASHSEED": "77"},
    )

    assert there.stdout.splitlines() == run(seed, steps).story.splitlines()
