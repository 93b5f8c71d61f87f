"""Simulates random histories of the whole service, with faults and crashes."""

from __future__ import annotations

import pytest

from tests.simulation.run import STEPS_PER_RUN, run, shorten


# Shows I1, I2, I3, I4, I5, I6, I7, I8, I9, I10, I11, I12, I13, F1, F2, F3, F4, F5, F6, F36, F39, F40, S23.
@pytest.mark.parametrize("seed", range(12))
def test_random_simulated_histories_do_not_violate_an_invariant(seed: int) -> None:
    steps = range(1, STEPS_PER_RUN + 1)
    found = run(seed, steps)
    if found.broken is not None:
        found, _ = shorten(seed, found, steps)
    assert found.broken is None, found.story
