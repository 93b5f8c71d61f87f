"""Migrated SQLite files for tests, and access that bypasses the repositories."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from typing import Any, Final

import msgspec
from sqlite_utils import Database

from adapters.sqlite.migrations import MIGRATIONS, migrate
from domain.audit.entry import AuditEntry
from domain.guests.guest import Guest
from domain.identifiers import GuestId, GuestReference, PspAccount
from domain.storage import Storage, UnitOfWork, WriteUnit

OF_0_1_0: Final = (
    "m001_records_on_file",
    "m002_card_sessions",
    "m003_payment_accounts",
    "m004_access_tokens",
)
"""The migrations of the release 0.1.0."""


def make_database(path: Path) -> None:
    """Create the file that `migrate` would create, but faster."""
    path.touch(mode=0o600)
    path.write_bytes(_migrated())


def make_database_of_0_1_0(path: Path) -> None:
    """Create the file that `migrate` of the release 0.1.0 would create."""
    with closing(Database(path, strict=True)) as db:
        MIGRATIONS.apply(db, stop_before="m005_release_0_2")


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "migrated.db"
        migrate(path)
        return path.read_bytes()


@contextmanager
def committed(storage: Storage) -> Iterator[WriteUnit]:
    """Provide a write unit that is committed at the end."""
    with storage.write() as unit:
        yield unit
        unit.commit()


def change_by_hand(storage: Storage, *statements: str, **values: str) -> None:
    """Run statements that bypass the repositories, as another release or an operator may."""
    with committed(storage) as unit:
        for statement in statements:
            transaction_of(unit).execute(statement, values)


def workers_age(storage: Storage, by: timedelta) -> None:
    """Make all stored heartbeats older."""
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


def audit_trail(
    storage: Storage, *, about: str | None = None, since: datetime | None = None
) -> Sequence[AuditEntry]:
    """Return the entries of the audit trail, newest first."""
    with storage.read() as unit:
        return unit.audit_trail.latest(about=about, since=since)


def references_of(
    storage: Storage, guest_id: GuestId
) -> Sequence[tuple[PspAccount, GuestReference]]:
    """Return the references of a guest at the PSPs."""
    with storage.read() as unit:
        return unit.guest_references.of(guest_id)


def guest_on_file(storage: Storage, guest_id: GuestId) -> Guest | None:
    """Return the guest with this id, or None."""
    with storage.read() as unit:
        return unit.guests.get(guest_id)


def transaction_of(unit: UnitOfWork) -> Any:  # SQLite's or PostgreSQL's
    """Return the transaction of a unit, to run statements that another release or operator runs."""
    return unit.centers._transaction  # type: ignore[attr-defined]  # no part of the port
