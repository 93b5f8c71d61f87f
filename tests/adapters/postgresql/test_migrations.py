from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import psycopg
import pytest

from adapters.postgresql import migrations
from adapters.postgresql.connection import connect
from adapters.postgresql.migrations import apply, migrate, pending
from domain.errors import ServiceUnavailable
from tests.waiting import wait_until


def test_a_database_from_an_earlier_release_gets_the_missing_migrations(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(migrations.MIGRATIONS, "m999_later", "CREATE TEMPORARY TABLE pets ()")
    assert pending(url) == ["m999_later"]
    with closing(connect(url)) as connection:
        assert apply(connection) == ["m999_later"]
        assert connection.execute("SELECT * FROM pets").fetchall() == []


def test_a_migration_that_waits_too_long_for_another_migration_fails(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(migrations, "WAIT_SECONDS", 0.01)
    with psycopg.connect(url) as other:
        other.execute("SELECT pg_advisory_xact_lock(%s)", (migrations._LOCK,))
        with pytest.raises(ServiceUnavailable):
            migrate(url)
        assert pending(url) == []


def test_a_migration_is_retried_after_a_deadlock(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(migrations.MIGRATIONS, "m999_later", "CREATE TABLE pets ()")
    granted = """
        SELECT granted FROM pg_locks JOIN pg_database ON pg_database.oid = database
        WHERE datname = current_database() AND relation = 'workers'::regclass ORDER BY granted
    """

    def want_the_other_table() -> None:
        wait_until(lambda: (False,) in other.execute(granted).fetchall())
        request.execute("LOCK TABLE centers IN SHARE MODE")
        request.rollback()

    with (
        psycopg.connect(own_url, autocommit=True) as other,
        psycopg.connect(own_url, options="-c deadlock_timeout=1min") as request,
        ThreadPoolExecutor() as pool,
    ):
        request.execute("LOCK TABLE workers IN SHARE MODE")
        wanting = pool.submit(want_the_other_table)
        assert migrate(own_url) == ["m999_later"]
        wanting.result()


def test_a_migration_does_not_wait_for_tables_of_other_programs(
    own_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(migrations.MIGRATIONS, "m999_later", "ALTER TABLE centers ADD note text")
    with psycopg.connect(own_url) as other:
        other.execute("CREATE TABLE bookings ()")
        other.commit()
        other.execute("LOCK TABLE bookings")
        assert migrate(own_url) == ["m999_later"]
