"""Tests of backups of a database file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from pysqlite3 import dbapi2

from adapters.sqlite.backup import CopyDamaged, copy


def test_a_backup_that_violates_its_own_schema_is_refused(tmp_path: Path) -> None:
    file, to = tmp_path / "cards.db", tmp_path / "copy.db"
    with closing(dbapi2.connect(str(file), isolation_level=None)) as database:
        database.execute("CREATE TABLE numbers (number integer)")
        database.execute("INSERT INTO numbers VALUES (NULL)")
        database.execute("PRAGMA writable_schema=ON")
        database.execute("UPDATE sqlite_schema SET sql = replace(sql, 'integer', 'NOT NULL')")
    to.touch()

    with pytest.raises(CopyDamaged, match=r"cards\.db is damaged.*NULL value in numbers\.number"):
        copy(file, to)
