from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import closing
from dataclasses import asdict
from pathlib import Path

import pytest
from sqlite_utils import Database

from adapters.psp_suite.samples import NOW, OTHER_GUEST_ID, a_uuid
from adapters.sqlite.migrations import migrate, pending
from adapters.sqlite.storage import SqliteStorage
from tests.builders import OTHER_CENTER_ID, an_account
from tests.databases import make_database_of_0_1_0


def test_only_a_migration_creates_a_missing_database_file(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    names = pending(path)
    assert list(tmp_path.iterdir()) == []
    assert migrate(path) == names
    assert pending(path) == []


class TestDatabaseOfRelease010:
    """The migrations add what the database lacks, and keep its rows."""

    @pytest.fixture
    def db(self, tmp_path: Path) -> Iterator[Database]:
        """A connection to a database of that release."""
        path = tmp_path / "cardonfile.db"
        make_database_of_0_1_0(path)
        with closing(Database(path)) as db:
            yield db

    def test_a_database_from_release_0_1_0_gets_the_schema_of_a_new_database(
        self, db: Database, path: Path, tmp_path: Path
    ) -> None:
        names = ["m005_release_0_2", "m006_operators", "m007_release_0_3"]
        assert pending(tmp_path / "cardonfile.db") == names
        assert migrate(tmp_path / "cardonfile.db") == names
        with closing(Database(path)) as new:
            assert sorted(db.schema.splitlines()) == sorted(new.schema.splitlines())

    # Shows I9.
    def test_a_guest_from_release_0_1_0_gets_the_oldest_active_card_as_the_default(
        self, db: Database, tmp_path: Path
    ) -> None:
        accounts = (
            an_account(9, removed_at=NOW),
            an_account(8, expiry_month=2, expiry_year=2028),
            an_account(7),
            an_account(6, center_id=OTHER_CENTER_ID),
            an_account(5, guest_id=OTHER_GUEST_ID, removed_at=NOW),
            an_account(4, guest_id=OTHER_GUEST_ID),
        )
        of_0_1_0 = {column.name for column in db["payment_accounts"].columns} - {"sequence"}
        db.table("payment_accounts").insert_all(
            {column: asdict(account)[column] for column in of_0_1_0} for account in accounts
        )

        migrate(tmp_path / "cardonfile.db")

        rows = list(db.query("SELECT * FROM payment_accounts ORDER BY sequence"))
        assert [row["account_id"] for row in rows if row["is_default"]] == [
            a_uuid(108),
            a_uuid(106),
            a_uuid(104),
        ]
        # The first notice is 30 days before the last day of the month.
        assert [row["expiry_notice_at"] for row in rows[:2]] == [
            None,
            "2028-01-30T00:00:00.000000+00:00",
        ]

    def test_a_link_of_release_0_1_0_counts_as_opened_if_its_page_was_requested(
        self, db: Database, tmp_path: Path
    ) -> None:
        for number, attempt in ((1, "NULL"), (2, "'{}'")):
            db.execute(
                "INSERT INTO card_sessions (token_id, guest_id, center_id, caller, source, "
                "redirect_uri, configuration, created_at, expires_at, status, attempt) "
                f"VALUES ('{a_uuid(number)}', '{a_uuid(3)}', '{a_uuid(4)}', 'shop', 1, "
                f"'https://shop.example', '{{}}', '2026-11-20', '2026-11-20', 'open', {attempt})"
            )
        db.conn.commit()

        migrate(tmp_path / "cardonfile.db")

        rows = db.query("SELECT progress FROM card_sessions ORDER BY token_id")
        assert [row["progress"] for row in rows] == ["created", "opened"]


def test_only_the_owner_can_read_the_sqlite_database_files(tmp_path: Path) -> None:
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


def test_every_sqlite_table_is_a_strict_table(path: Path) -> None:
    with closing(Database(path)) as db:
        assert len(db.tables) > 10
        assert [table.name for table in db.tables if not table.strict] == []
