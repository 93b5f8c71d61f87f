"""An import of cards that is killed; `tests.entrypoints.importing` does it with 10,000 cards."""

from __future__ import annotations

from pathlib import Path

from tests.entrypoints.importing import import_on


# Shows I2, I7, I9.
def test_an_import_that_is_killed_is_completed_with_nothing_doubled(tmp_path: Path) -> None:
    imported = import_on("SQLite", tmp_path, cards=30, kills=1, seed=1)

    assert imported.wrong == []
    assert sum(imported.told.values()) == 6
