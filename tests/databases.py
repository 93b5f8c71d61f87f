"""Migrated SQLite files for tests, and the way past the repositories."""

from __future__ import annotations

import tempfile
from contextlib import closing
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlite_utils import Database

from adapters.sqlite.migrations import MIGRATIONS, migrate
from domain.storage import Storage, UnitOfWork

OF_0_1_0: Final = (
    "m001_records_on_file",
    "m002_card_sessions",
    "m003_payment_accounts",
    "m004_access_tokens",
)
"""The migrations of the release 0.1.0."""


def make_database(path: Path) -> None:
    """Make the file that `migrate` would make, faster."""
    path.touch(mode=0o600)
    path.write_bytes(_migrated())


def make_database_of_0_1_0(path: Path) -> None:
    """Make the file that `migrate` of the release 0.1.0 would make."""
    with closing(Database(path, strict=True)) as db:
        MIGRATIONS.apply(db, stop_before="m005_release_0_2")


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.db"
        migrate(path)
        return path.read_bytes()


def change_by_hand(storage: Storage, *statements: str, **values: str) -> None:
    """Run statements past the repositories and commit, as another release or an operator may."""
    with storage.write() as unit:
        for statement in statements:
            transaction_of(unit).execute(statement, values)
        unit.commit()


def workers_age(storage: Storage, by: timedelta) -> None:
    """Make all heartbeats so far older."""
    with storage.read() as unit:
        rows = transaction_of(unit).execute("SELECT worker_id, since, seen_at FROM workers")
        workers = rows.fetchall()
    for worker_id, *times in workers:
        since, seen_at = (msgspec.convert(time, datetime) - by for time in times)
        change_by_hand(
            storage,
            "UPDATE workers SET since = :since, seen_at = :seen_at WHERE worker_id = :worker_id",
            worker_id=worker_id,
            since=since.isoformat(timespec="microseconds"),
            seen_at=seen_at.isoformat(timespec="microseconds"),
        )


def transaction_of(unit: UnitOfWork) -> Any:  # SQLite's or PostgreSQL's
    """Return the transaction of a unit, for what another release or an operator may do by hand."""
    return unit.centers._transaction  # type: ignore[attr-defined]  # no part of the port
