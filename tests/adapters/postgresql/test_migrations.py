from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlite_utils import Database

from adapters.postgresql import migrations
from adapters.postgresql.migrations import migrate, pending
from adapters.postgresql.storage import PostgresqlStorage
from adapters.psp.contract.concurrency import at_once
from adapters.sql.migrations import DatabaseIsNewer
from adapters.sqlite import migrations as sqlite_migrations
from domain.errors import ServiceUnavailable
from tests.adapters.postgresql.by_hand import execute
from tests.databases import make_database
from tests.postgresql import new_database

ALL = [
    *("m001_records_on_file", "m002_card_sessions", "m003_payment_accounts", "m004_access_tokens"),
    "m005_merchant_identities",
    "m006_worker_heartbeats",
]
ROOT = Path(__file__).parents[3]
SCHEMA = """
    SELECT table_name, column_name, data_type FROM information_schema.columns
    WHERE table_schema = 'public' ORDER BY table_name, ordinal_position
"""


@pytest.fixture
def empty(postgresql_server: str) -> Iterator[str]:
    """Give the address of a database with nothing in it."""
    with new_database(postgresql_server, migrated=False) as url:
        yield url


def test_an_empty_database_takes_every_migration_in_order(empty: str) -> None:
    assert migrate(empty) == ALL
    assert pending(empty) == []
    with closing(PostgresqlStorage(empty)) as storage:
        storage.check()


def test_migrating_again_changes_nothing(url: str) -> None:
    execute(url, "INSERT INTO centers VALUES ('00000000-0000-4000-8000-000000000001', 'Spa')")
    before = execute(url, SCHEMA)
    assert migrate(url) == []
    assert execute(url, SCHEMA) == before
    assert execute(url, "SELECT name FROM centers") == [("Spa",)]


def test_what_is_pending_is_named_without_applying_it(empty: str) -> None:
    assert pending(empty) == ALL
    assert execute(empty, SCHEMA) == []


def test_what_an_earlier_release_applied_is_not_applied_again(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        earlier = {name: migrations.MIGRATIONS[name] for name in ALL[:2]}
        patch.setattr(migrations, "MIGRATIONS", earlier)
        assert migrate(empty) == ALL[:2]
    assert pending(empty) == ALL[2:]
    assert migrate(empty) == ALL[2:]


@pytest.mark.parametrize("isolation", ["read committed", "serializable"])
def test_of_many_at_once_one_applies_each_migration_and_the_others_wait(
    empty: str, isolation: str
) -> None:
    database = empty.rpartition("/")[2]
    execute(empty, f"ALTER DATABASE {database} SET default_transaction_isolation = '{isolation}'")
    assert sorted(at_once(6, lambda _: migrate(empty))) == [*[[]] * 5, ALL]
    assert pending(empty) == []


def test_four_processes_at_once_apply_each_migration_once(empty: str) -> None:
    program = (
        "import sys; from adapters.postgresql.migrations import migrate; "
        "sys.stdin.readline(); print(*migrate(sys.argv[1]))"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", program, empty],
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


def test_who_waits_for_another_too_long_is_given_up(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "WAIT_SECONDS", 0.01)
    with psycopg.connect(empty) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (migrations._LOCK,))
        with pytest.raises(ServiceUnavailable):
            migrate(empty)
        assert pending(empty) == ALL


def test_a_migration_that_fails_leaves_the_database_as_it_was(
    empty: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = {"m999_fails": "CREATE TABLE half_done (id text); SELECT 1 / 0"}
    monkeypatch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS | failing)
    with pytest.raises(psycopg.errors.DivisionByZero):
        migrate(empty)
    assert execute(empty, SCHEMA) == []


def test_the_database_of_a_newer_release_is_refused_and_not_touched(url: str) -> None:
    execute(url, "INSERT INTO cardonfile_migrations VALUES ('m999_from_the_future')")
    before = execute(url, SCHEMA)
    for use in (migrate, pending):
        with pytest.raises(DatabaseIsNewer, match="m999_from_the_future") as refused:
            use(url)
        assert refused.value.unknown == ("m999_from_the_future",)
    assert execute(url, SCHEMA) == before


def test_a_database_that_is_not_there_is_unavailable(url: str) -> None:
    for use in (migrate, pending):
        with pytest.raises(ServiceUnavailable):
            use(f"{url}_not")


def test_both_storages_have_been_through_the_same_migrations() -> None:
    assert list(migrations.MIGRATIONS) == sqlite_migrations._known() == ALL


def test_both_storages_have_the_same_tables_and_columns(url: str, tmp_path: Path) -> None:
    in_postgresql = {
        (table, column): (nullable == "YES", bool(is_key))
        for table, column, nullable, is_key in execute(
            url,
            """
            SELECT table_name, column_name, is_nullable, EXISTS (
                SELECT FROM information_schema.table_constraints
                JOIN information_schema.key_column_usage USING (constraint_name, table_name)
                WHERE constraint_type = 'PRIMARY KEY' AND table_name = columns.table_name
                    AND column_name = columns.column_name
            )
            FROM information_schema.columns
            WHERE table_schema = 'public' AND table_name <> 'cardonfile_migrations'
            """,
        )
    }
    make_database(tmp_path / "cards.db")
    with closing(Database(tmp_path / "cards.db")) as db:
        in_sqlite = {
            (table.name, column.name): (not column.notnull, bool(column.is_pk))
            for table in db.tables
            if not table.name.startswith("_sqlite_migrations")
            for column in table.columns
        }
    # SQLite finds a row that comes twice in an import by `import_id`, and has the order of rows
    # from their rowid, which is `sequence` where it may be told.
    of_sqlite_alone = {(table, "import_id") for table in ("centers", "guests", "products")}
    of_postgresql_alone = {(table, "sequence") for table in ("access_tokens", "evidence")}
    assert set(in_sqlite) - set(in_postgresql) == of_sqlite_alone
    assert set(in_postgresql) - set(in_sqlite) == of_postgresql_alone
    accounts = "payment_accounts"
    assert in_sqlite.pop((accounts, "sequence")) == (True, True)
    assert in_sqlite.pop((accounts, "account_id")) == (False, False)
    assert in_postgresql.pop((accounts, "sequence")) == (False, False)
    assert in_postgresql.pop((accounts, "account_id")) == (False, True)
    in_both = set(in_sqlite) & set(in_postgresql)
    assert {each: in_sqlite[each] for each in in_both} == {
        each: in_postgresql[each] for each in in_both
    }
