"""Migrated SQLite files for tests."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path

from adapters.sqlite.migrations import migrate


def make_database(path: Path) -> None:
    """Make the file that `migrate` would make, faster."""
    path.touch(mode=0o600)
    path.write_bytes(_migrated())


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.db"
        migrate(path)
        return path.read_bytes()
