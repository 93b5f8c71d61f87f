"""A service is killed while it erases guests. `make torture` does this a hundred times."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.entrypoints.erasing import erase_on


# Shows I12.
@pytest.mark.parametrize(("storage", "kills"), [("SQLite", 2), ("PostgreSQL", 1)])
def test_erasures_are_completed_even_if_the_service_is_killed_repeatedly(
    storage: str, kills: int, tmp_path: Path
) -> None:
    erased = erase_on(storage, tmp_path, kills=kills, seed=1)

    assert erased.left == []
    assert erased.guests == kills
