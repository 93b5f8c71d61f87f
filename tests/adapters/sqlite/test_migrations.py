from __future__ import annotations

import os
import stat
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database

from adapters.sqlite.migrations import migrate, pending
from adapters.sqlite.storage import SqliteStorage
from domain.errors import ServiceUnavailable


def test_a_missing_file_is_created_by_a_migration_only(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    names = pending(path)
    assert list(tmp_path.iterdir()) == []
    assert migrate(path) == names
    assert pending(path) == []


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    path.write_bytes(b"no database" * 1_000)
    for use in (migrate, pending):
        with pytest.raises(ServiceUnavailable):
            use(path)


def test_the_files_are_for_their_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    before = os.umask(0)
    try:
        migrate(path)
        with closing(SqliteStorage(path)) as storage:
            storage.check()
            modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(
        ("cardonfile.db", "cardonfile.db-wal", "cardonfile.db-shm"), 0o600
    )


def test_every_table_is_strict(path: Path) -> None:
    with closing(Database(path)) as db:
        assert len(db.tables) > 10
        assert [table.name for table in db.tables if not table.strict] == []
