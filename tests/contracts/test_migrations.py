"""Tests that the migrations of both storages must pass. Both lead to the same schema."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pysqlite3 import dbapi2
from sqlite_utils import Database

from adapters.postgresql import migrations as postgresql
from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, a_uuid
from adapters.sql.migrations import DatabaseIsNewer, DatabaseOfNoRelease
from adapters.sqlite import migrations as sqlite
from tests.adapters.postgresql.by_hand import execute, set_default
from tests.builders import CENTER_ID
from tests.databases import OF_0_1_0, make_database
from tests.postgresql import empty_database, new_database

ALL = {"sqlite": [*OF_0_1_0, *postgresql.MIGRATIONS], "postgresql": list(postgresql.MIGRATIONS)}
"""The migrations of each storage, in order."""


@dataclass(frozen=True, kw_only=True)
class Migrated:
    """A database to migrate, with SQL to inspect it."""

    every: list[str]
    migrate_to_0_2: Callable[[], object]
    migrate: Callable[[], list[str]]
    pending: Callable[[], list[str]]
    execute: Callable[[str], list[tuple[Any, ...]]]  # a column may hold anything
    columns: str
    applied: str


def in_sqlite(path: Path, statement: str) -> list[tuple[Any, ...]]:
    """Run a statement on a separate connection, and return its rows."""
    with closing(dbapi2.connect(str(path), isolation_level=None)) as connection:
        rows: list[tuple[Any, ...]] = connection.execute(statement).fetchall()
        return rows


def sqlite_to_0_2(path: Path) -> None:
    with closing(Database(path, strict=True)) as db:
        sqlite.MIGRATIONS.apply(db, stop_before="m006_operators")


POSTGRESQL_TO_0_2 = f"""
    CREATE TABLE cardonfile_migrations
        (name text PRIMARY KEY, applied_at timestamptz NOT NULL DEFAULT now());
    INSERT INTO cardonfile_migrations (name) VALUES ('m005_release_0_2');
    {postgresql.MIGRATIONS["m005_release_0_2"]}
"""


@pytest.fixture(params=["sqlite", "postgresql"])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Migrated]:
    """Return a database without tables, of each adapter in turn."""
    if request.param == "sqlite":
        path = tmp_path / "cardonfile.db"
        path.touch()
        yield Migrated(
            every=ALL[request.param],
            migrate_to_0_2=partial(sqlite_to_0_2, path),
            migrate=partial(sqlite.migrate, path),
            pending=partial(sqlite.pending, path),
            execute=partial(in_sqlite, path),
            columns="SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL",
            applied="_sqlite_migrations (migration_set, name, applied_at) "
            "VALUES ('cardonfile', 'm999_later', '2030-01-01')",
        )
        return
    with new_database(request.getfixturevalue("postgresql_server"), migrated=False) as url:
        set_default(url, "default_transaction_isolation = serializable")
        yield Migrated(
            every=ALL[request.param],
            migrate_to_0_2=partial(execute, url, POSTGRESQL_TO_0_2),
            migrate=partial(postgresql.migrate, url),
            pending=partial(postgresql.pending, url),
            execute=partial(execute, url),
            columns="SELECT table_name, column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = 'public' ORDER BY table_name, ordinal_position",
            applied="cardonfile_migrations (name) VALUES ('m999_later')",
        )


def test_every_migration_is_applied_to_an_empty_database_in_order(empty: Migrated) -> None:
    assert empty.pending() == empty.every
    assert empty.execute(empty.columns) == []
    assert empty.migrate() == empty.every
    migrated = empty.execute(empty.columns)
    assert empty.pending() == []
    assert empty.migrate() == []
    assert empty.execute(empty.columns) == migrated


def test_only_one_of_many_concurrent_processes_applies_the_migrations(empty: Migrated) -> None:
    assert sorted(at_once(6, lambda _: empty.migrate())) == [*[[]] * 5, empty.every]
    assert empty.pending() == []


def test_a_failing_migration_leaves_the_database_unchanged(empty: Migrated) -> None:
    empty.execute("CREATE TABLE workers (id integer)")
    before = empty.execute(empty.columns)
    with pytest.raises(Exception, match="workers"):
        empty.migrate()
    assert empty.execute(empty.columns) == before


# Shows F10.
def test_migrating_a_database_from_a_newer_release_is_refused(empty: Migrated) -> None:
    empty.migrate()
    empty.execute(f"INSERT INTO {empty.applied}")
    before = empty.execute(empty.columns)
    for use in (empty.migrate, empty.pending):
        with pytest.raises(DatabaseIsNewer, match="m999_later") as refused:
            use()
        assert refused.value.unknown == ("m999_later",)
    assert empty.execute(empty.columns) == before


def test_migrating_a_database_from_a_development_build_is_refused(empty: Migrated) -> None:
    empty.migrate()
    empty.execute(f"INSERT INTO {empty.applied}")
    empty.execute(f"DELETE FROM {empty.applied.split()[0]} WHERE name = '{empty.every[-1]}'")
    before = empty.execute(empty.columns)
    for use in (empty.migrate, empty.pending):
        with pytest.raises(
            DatabaseOfNoRelease, match=r"between releases .*m999_later.* new database"
        ):
            use()
    assert empty.execute(empty.columns) == before


def a_session_with(number: int, text: str, account: int | None, *, ended: int) -> str:
    """Return the statement that stores a session that ended at the minute `ended`."""
    consent = {"version": "2026-11", "text": text}
    attempt = json.dumps({"request": {"consent": consent}}) if text else "null"
    account_id = "NULL" if account is None else f"'{a_uuid(account)}'"
    return (
        "INSERT INTO card_sessions (token_id, guest_id, center_id, caller, source, redirect_uri, "
        "configuration, created_at, expires_at, status, attempt, account_id, ended_at) VALUES ("
        f"'{a_uuid(number)}', '{GUEST_ID}', '{CENTER_ID}', 'shop', 1, 'https://shop.example', '{{}}', "
        f"'{at(0)}', '{at(0)}', 'completed', '{attempt}', {account_id}, '{at(ended)}')"
    )


def an_account_with(number: int, session: int, *, agreed: int, removed: str = "NULL") -> str:
    """Return the statement that stores an account whose guest agreed at the minute `agreed`."""
    return (
        "INSERT INTO payment_accounts (account_id, token_id, guest_id, center_id, provider, "
        "merchant_account, guest_reference, token, fingerprint, card_logo, last_four, "
        "expiry_month, expiry_year, source, consent_version, consented_at, created_at, removed_at) "
        f"VALUES ('{a_uuid(number)}', '{a_uuid(session)}', '{GUEST_ID}', '{CENTER_ID}', 'fake', "
        f"'default', 'guest', 'token-{number}', 'fingerprint-{number}', 'visa', '4242', 9, 2031, "
        f"1, '2026-11', '{at(agreed)}', '{at(0)}', {removed})"
    )


def at(minute: int) -> str:
    return f"2026-11-20T12:{minute:02}:00.000000+00:00"


# Shows I11.
def test_migrated_accounts_get_the_consents_of_existing_sessions(empty: Migrated) -> None:
    empty.migrate_to_0_2()
    for statement in (
        an_account_with(11, 1, agreed=30),
        an_account_with(12, 3, agreed=7, removed=f"'{at(50)}'"),
        an_account_with(13, 4, agreed=9),
        an_account_with(14, 5, agreed=9),
        a_session_with(1, "Zoë “Spa”", 11, ended=6),
        a_session_with(2, "Spa", 11, ended=31),
        a_session_with(3, "Spa", 12, ended=8),
        a_session_with(5, "", 14, ended=9),
        a_session_with(6, "Spa", None, ended=9),
    ):
        empty.execute(statement)

    assert empty.migrate() == ["m006_operators", "m007_release_0_3"]

    texts = [("2026-11", "en", "Spa"), ("2026-11", "en", "Zoë “Spa”")]
    ids = [sha256("\n".join(each).encode()).hexdigest() for each in texts]
    stored = "SELECT text_id, version, language, text FROM consent_texts ORDER BY text"
    assert empty.execute(stored) == [(ids[0], *texts[0]), (ids[1], *texts[1])]
    kept = empty.execute("SELECT token_id, account_id, text_id, agreed_at FROM consents")
    assert sorted(
        (str(of), str(account), text, in_utc(time)) for of, account, text, time in kept
    ) == [
        (a_uuid(1), a_uuid(11), ids[1], at(6)),
        (a_uuid(2), a_uuid(11), ids[0], at(30)),
        (a_uuid(3), a_uuid(12), ids[0], at(7)),
    ]


def test_migrated_accounts_are_refreshed_within_30_days(empty: Migrated) -> None:
    empty.migrate_to_0_2()
    for number in range(11, 51):
        empty.execute(an_account_with(number, number, agreed=30))
    empty.execute(an_account_with(9, 9, agreed=7, removed=f"'{at(50)}'"))
    earliest = datetime.now(UTC)

    empty.migrate()

    found = empty.execute("SELECT due_at FROM payment_accounts ORDER BY due_at")
    times = sorted(in_utc(due_at) for (due_at,) in found if due_at)
    assert len(times) == 40
    assert (
        in_utc(earliest - timedelta(seconds=1)) < times[0] < in_utc(earliest + timedelta(days=15))
    )
    assert in_utc(earliest + timedelta(days=15)) < times[-1] < in_utc(earliest + timedelta(days=31))
    assert all(len(time) == len(at(0)) for time in times)


def in_utc(time: datetime | str) -> str:
    """Return a time as SQLite stores it."""
    as_time = datetime.fromisoformat(time) if isinstance(time, str) else time
    return as_time.astimezone(UTC).isoformat(timespec="microseconds")


def test_both_storages_have_the_same_schema(postgresql_server: str, tmp_path: Path) -> None:
    assert sqlite.pending(tmp_path / "missing.db") == ALL["sqlite"]
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
    # SQLite orders rows by the rowid instead of a column `sequence`, except in payment_accounts.
    only_in_postgresql = {(table, "sequence") for table in ("access_tokens", "evidence", "events")}
    assert set(columns_in_sqlite) <= set(columns_in_postgresql)
    assert set(columns_in_postgresql) - set(columns_in_sqlite) == only_in_postgresql
    differing = {
        each
        for each in set(columns_in_sqlite) & set(columns_in_postgresql)
        if columns_in_sqlite[each] != columns_in_postgresql[each]
    }
    assert differing == {("payment_accounts", "sequence"), ("payment_accounts", "account_id")}
