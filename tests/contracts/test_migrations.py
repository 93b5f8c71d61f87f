"""What the migrations of every storage promise, and that both lead to the same schema."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pysqlite3 import dbapi2
from sqlite_utils import Database

from adapters.postgresql import migrations as postgresql
from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import NOW, OTHER_GUEST_ID, a_uuid
from adapters.sql.migrations import DatabaseIsNewer
from adapters.sqlite import migrations as sqlite
from tests.adapters.postgresql.by_hand import execute
from tests.builders import OTHER_CENTER_ID, a_payment_account
from tests.databases import make_database
from tests.postgresql import empty_database, new_database

ALL = list(postgresql.MIGRATIONS)


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """A database to migrate, and SQL to look at it."""

    migrate: Callable[[], list[str]]
    pending: Callable[[], list[str]]
    execute: Callable[[str], list[tuple[Any, ...]]]  # a column may hold anything
    columns: str
    applied: str


def in_sqlite(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on a connection of its own, and return its rows."""
    with closing(dbapi2.connect(str(path), isolation_level=None)) as connection:
        rows: list[tuple[Any, ...]] = connection.execute(statement).fetchall()
        return rows


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Migrated]:
    """Return a database without tables, of each adapter in turn."""
    if request.param == "sqlite":
        path = tmp_path / "cardonfile.db"
        path.touch()
        yield Migrated(
            migrate=partial(sqlite.migrate, path),
            pending=partial(sqlite.pending, path),
            execute=partial(in_sqlite, path),
            columns="SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL",
            applied="_sqlite_migrations (migration_set, name, applied_at) "
            "VALUES ('cardonfile', 'm999_later', '2030-01-01')",
        )
        return
    with new_database(request.getfixturevalue("postgresql_server"), migrated=False) as url:
        name = url.rpartition("/")[2]
        execute(url, f"ALTER DATABASE {name} SET default_transaction_isolation = serializable")
        yield Migrated(
            migrate=partial(postgresql.migrate, url),
            pending=partial(postgresql.pending, url),
            execute=partial(execute, url),
            columns="SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
            applied="cardonfile_migrations (name) VALUES ('m999_later')",
        )


def test_an_empty_database_takes_every_migration_in_order_and_once(empty: Migrated) -> None:
    assert empty.pending() == ALL
    assert empty.execute(empty.columns) == []
    assert empty.migrate() == ALL
    migrated = empty.execute(empty.columns)
    assert empty.pending() == []
    assert empty.migrate() == []
    assert empty.execute(empty.columns) == migrated


def test_a_database_of_an_earlier_release_takes_what_it_lacks(empty: Migrated) -> None:
    empty.migrate()
    migrated = empty.execute(empty.columns)
    table = empty.applied.split()[0]
    empty.execute("DROP TABLE worker_heartbeats")
    empty.execute(f"DELETE FROM {table} WHERE name = 'm006_worker_heartbeats'")
    assert empty.pending() == ["m006_worker_heartbeats"]
    assert empty.migrate() == ["m006_worker_heartbeats"]
    assert sorted(empty.execute(empty.columns)) == sorted(migrated)


# Shows I9.
def test_the_oldest_card_of_an_earlier_release_becomes_the_default(empty: Migrated) -> None:
    empty.migrate()
    for statement in (
        "DROP INDEX payment_accounts_default",
        "DROP INDEX payment_accounts_expiring",
        "ALTER TABLE payment_accounts DROP COLUMN is_default",
        f"DELETE FROM {empty.applied.split()[0]} WHERE name = 'm010_default_cards'",
    ):
        empty.execute(statement)
    for account in (
        a_payment_account(9, removed_at=NOW),
        a_payment_account(8),
        a_payment_account(7),
        a_payment_account(6, center_id=OTHER_CENTER_ID),
        a_payment_account(5, guest_id=OTHER_GUEST_ID, removed_at=NOW),
        a_payment_account(4, guest_id=OTHER_GUEST_ID),
    ):
        row = {field: value for field, value in asdict(account).items() if field != "is_default"}
        values = ("NULL" if value is None else f"'{value}'" for value in row.values())
        empty.execute(
            f"INSERT INTO payment_accounts ({', '.join(row)}) VALUES ({', '.join(values)})"
        )
    assert empty.migrate() == ["m010_default_cards"]
    assert empty.execute(
        "SELECT CAST(account_id AS text) FROM payment_accounts WHERE is_default ORDER BY sequence"
    ) == [(a_uuid(108),), (a_uuid(106),), (a_uuid(104),)]


def test_sessions_of_an_earlier_release_are_opened_if_they_have_an_attempt(
    empty: Migrated,
) -> None:
    empty.migrate()
    table = empty.applied.split()[0]
    empty.execute(f"DELETE FROM {table} WHERE name = 'm009_sessions_that_say_more'")
    for column in ("card_sessions.progress", "card_sessions.cancelled_at"):
        empty.execute("ALTER TABLE {} DROP COLUMN {}".format(*column.split(".")))
    for name in ("card_sessions", "payment_configurations"):
        empty.execute(f"ALTER TABLE {name} DROP COLUMN link_minutes")
    for number, attempt in ((1, "NULL"), (2, "'{}'")):
        empty.execute(
            "INSERT INTO card_sessions (token_id, guest_id, center_id, caller, source, "
            "redirect_uri, configuration, created_at, expires_at, status, attempt) "
            f"VALUES ('{a_uuid(number)}', '{a_uuid(3)}', '{a_uuid(4)}', 'shop', 1, "
            f"'https://shop.example', '{{}}', '2026-11-20', '2026-11-20', 'open', {attempt})"
        )

    assert empty.migrate() == ["m009_sessions_that_say_more"]

    sessions = "SELECT progress FROM card_sessions ORDER BY token_id"
    assert empty.execute(sessions) == [("created",), ("opened",)]


def test_of_many_at_once_one_applies_every_migration(empty: Migrated) -> None:
    assert sorted(at_once(6, lambda _: empty.migrate())) == [*[[]] * 5, ALL]
    assert empty.pending() == []


def test_a_migration_that_fails_leaves_the_database_as_it_was(empty: Migrated) -> None:
    empty.execute("CREATE TABLE worker_heartbeats (id integer)")
    before = empty.execute(empty.columns)
    with pytest.raises(Exception, match="worker_heartbeats"):
        empty.migrate()
    assert empty.execute(empty.columns) == before


# Shows F10.
def test_the_database_of_a_newer_release_is_refused_and_not_touched(empty: Migrated) -> None:
    empty.migrate()
    empty.execute(f"INSERT INTO {empty.applied}")
    before = empty.execute(empty.columns)
    for use in (empty.migrate, empty.pending):
        with pytest.raises(DatabaseIsNewer, match="m999_later") as refused:
            use()
        assert refused.value.unknown == ("m999_later",)
    assert empty.execute(empty.columns) == before


def test_both_storages_have_the_same_migrations_tables_and_columns(
    postgresql_server: str, tmp_path: Path
) -> None:
    assert sqlite.pending(tmp_path / "missing.db") == ALL
    with empty_database(postgresql_server) as url:
        columns_in_postgresql = {
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
        partial_in_postgresql = execute(
            url, "SELECT indexrelid::regclass::text FROM pg_index WHERE indpred IS NOT NULL"
        )
    make_database(tmp_path / "cards.db")
    partial_in_sqlite = in_sqlite(
        tmp_path / "cards.db",
        "SELECT name FROM sqlite_schema WHERE type = 'index' AND sql LIKE '% WHERE %'",
    )
    assert set(partial_in_postgresql) == set(partial_in_sqlite)
    with closing(Database(tmp_path / "cards.db")) as db:
        columns_in_sqlite = {
            (table.name, column.name): (not column.notnull, bool(column.is_pk))
            for table in db.tables
            if not table.name.startswith("_sqlite_migrations")
            for column in table.columns
        }
    # SQLite's rowid orders rows as `sequence` does in PostgreSQL; in payment_accounts it has a name.
    only_in_postgresql = {(table, "sequence") for table in ("access_tokens", "evidence")}
    assert set(columns_in_sqlite) <= set(columns_in_postgresql)
    assert set(columns_in_postgresql) - set(columns_in_sqlite) == only_in_postgresql
    differing = {
        each
        for each in set(columns_in_sqlite) & set(columns_in_postgresql)
        if columns_in_sqlite[each] != columns_in_postgresql[each]
    }
    assert differing == {("payment_accounts", "sequence"), ("payment_accounts", "account_id")}
