from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlite_utils import Database, Migrations

from adapters.sql.migrations import DatabaseIsNewer
from adapters.sqlite import migrations
from adapters.sqlite.connection import connect
from adapters.sqlite.migrations import migrate, pending
from adapters.sqlite.storage import SqliteStorage
from domain.errors import ServiceUnavailable

ALL = [
    *("m001_records_on_file", "m002_card_sessions", "m003_payment_accounts", "m004_access_tokens"),
    "m005_merchant_identities",
    "m006_worker_heartbeats",
]
ROOT = Path(__file__).parents[3]


@pytest.fixture
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def write(path: Path, statement: str) -> None:
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        db.execute("PRAGMA query_only=OFF")
        db.execute(statement)


def read(path: Path, query: str) -> list[tuple[object, ...]]:
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        return db.execute(query).fetchall()


def test_an_empty_database_takes_every_migration_in_order(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    assert migrate(path) == ALL
    assert pending(path) == []


def test_migrating_again_changes_nothing(path: Path) -> None:
    write(path, "INSERT INTO centers VALUES ('c', 'Harbor Spa', 1)")
    before = read(path, "SELECT * FROM sqlite_schema")
    assert migrate(path) == []
    assert read(path, "SELECT * FROM sqlite_schema") == before
    assert read(path, "SELECT id FROM centers") == [("c",)]


def test_a_missing_database_lacks_every_migration_and_is_not_made(tmp_path: Path) -> None:
    assert pending(tmp_path / "cardonfile.db") == ALL
    assert list(tmp_path.iterdir()) == []


def test_what_is_pending_is_named_without_applying_it(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    path.touch()
    assert pending(path) == ALL
    assert read(path, "SELECT * FROM sqlite_schema") == []


@pytest.mark.parametrize("attempt", range(3))
@pytest.mark.slow
def test_four_processes_at_once_apply_each_migration_once(tmp_path: Path, attempt: int) -> None:
    path = tmp_path / "cardonfile.db"
    program = (
        "import sys; from pathlib import Path; from adapters.sqlite.migrations import migrate; "
        "sys.stdin.readline(); print(*migrate(Path(sys.argv[1])))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, str(path)],
            cwd=ROOT,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    applied = [process.communicate(timeout=60)[0].split() for process in processes]
    assert [process.returncode for process in processes] == [0, 0, 0, 0]
    assert sorted(applied) == [[], [], [], ALL]
    assert pending(path) == []


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(db: Database) -> None:
        db.execute("CREATE TABLE half_done (id TEXT)")
        raise ZeroDivisionError

    longer = Migrations(migrations.MIGRATIONS.name)
    longer._migrations = list(migrations.MIGRATIONS._migrations)
    longer(name="m999_fails")(fail)
    monkeypatch.setattr(migrations, "MIGRATIONS", longer)
    path = tmp_path / "cardonfile.db"
    with pytest.raises(ZeroDivisionError):
        migrate(path)
    assert read(path, "SELECT * FROM sqlite_schema") == []


def test_the_database_of_a_newer_release_is_refused_and_not_touched(path: Path) -> None:
    write(
        path,
        "INSERT INTO _sqlite_migrations (migration_set, name, applied_at) "
        "VALUES ('cardonfile', 'm999_from_the_future', '2030-01-01')",
    )
    before = read(path, "SELECT * FROM sqlite_schema")
    for use in (migrate, pending):
        with pytest.raises(DatabaseIsNewer, match="m999_from_the_future") as refused:
            use(path)
        assert refused.value.unknown == ("m999_from_the_future",)
    assert read(path, "SELECT * FROM sqlite_schema") == before


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    path.write_bytes(b"no database" * 1_000)
    for use in (migrate, pending):
        with pytest.raises(ServiceUnavailable):
            use(path)


def test_the_files_are_for_their_owner_only(tmp_path: Path, open_umask: None) -> None:
    path = tmp_path / "cardonfile.db"
    migrate(path)
    with closing(SqliteStorage(path)) as storage:
        storage.check()
        modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in tmp_path.iterdir()}
    assert modes == {
        "cardonfile.db": 0o600,
        "cardonfile.db-wal": 0o600,
        "cardonfile.db-shm": 0o600,
    }


def test_every_table_is_strict(path: Path) -> None:
    tables = read(path, "SELECT name FROM pragma_table_list WHERE name NOT LIKE 'sqlite_%'")
    lax = read(
        path,
        "SELECT name FROM pragma_table_list WHERE NOT strict AND name NOT LIKE 'sqlite_%'",
    )
    assert len(tables) > 10
    assert lax == []
