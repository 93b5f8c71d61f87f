"""Fixtures: a migrated database file, and a storage that uses it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from adapters.sqlite.storage import SqliteStorage
from tests.databases import make_database


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a migrated, empty database."""
    path = tmp_path / "cards on file?.db"
    make_database(path)
    return path


@pytest.fixture
def storage(path: Path) -> Iterator[SqliteStorage]:
    """Return a storage that uses the database, without a busy timeout."""
    with closing(SqliteStorage(path, busy_timeout_seconds=0)) as storage:
        yield storage
