"""A service is killed while it erases guests. `make torture` does this a hundred times."""

from __future__ import annotations

from pathlib import Path

from tests.entrypoints.erasing import erase_on


# Shows I12.
def test_erasures_are_completed_even_if_the_service_is_killed(tmp_path: Path) -> None:
    # The simulation kills on SQLite.
    erased = erase_on("PostgreSQL", tmp_path, kills=1, seed=1)

    assert erased.left == []
    assert erased.guests == 1
