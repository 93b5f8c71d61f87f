from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Final

import pytest
from sqlite_utils import Database

from adapters.psp.contract.concurrency import at_once
from adapters.psp.contract.samples import GUEST_ID, TOKEN_ID, a_uuid
from adapters.sqlite import connection
from adapters.sqlite.connection import (
    Connections,
    Error,
    FileUnusable,
    SqliteIsTooOld,
    _use_write_ahead_log,
    connect,
)
from adapters.sqlite.storage import SqliteStorage
from domain.errors import ServiceUnavailable
from domain.identifiers import GuestId
from tests.builders import CENTER_ID, a_center, a_guest, a_session
from tests.concurrency import elsewhere
from tests.waiting import wait_until

PAGE_BYTES: Final = 4_096


@contextmanager
def writing_elsewhere(path: Path) -> Iterator[None]:
    """Hold the write lock as another process would."""
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        db.execute("PRAGMA query_only=OFF")
        db.execute("BEGIN IMMEDIATE")
        yield


@contextmanager
def full_disk() -> Iterator[None]:
    """Let no file of this process grow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def add_session(storage: SqliteStorage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        unit.commit()


def has_session(storage: SqliteStorage) -> bool:
    with storage.read() as unit:
        return unit.sessions.get(TOKEN_ID) is not None


def connection_of(storage: SqliteStorage, *, writing: bool = False) -> Database:
    with storage._connections.transaction(writing=writing) as transaction:
        return transaction.db


@pytest.mark.parametrize("writing", [False, True])
@pytest.mark.parametrize(
    ("pragma", "value"),
    [
        ("journal_mode", "wal"),
        ("synchronous", 2),
        ("foreign_keys", 1),
    ],
)
def test_the_settings_that_keep_records_safe_are_in_force(
    path: Path, pragma: str, value: object, writing: bool
) -> None:
    with closing(SqliteStorage(path)) as storage:
        db = connection_of(storage, writing=writing)
        assert db.execute(f"PRAGMA {pragma}").fetchone() == (value,)


def test_a_reader_waits_for_who_recovers_the_database(path: Path) -> None:
    with closing(SqliteStorage(path)) as storage:
        assert connection_of(storage).execute("PRAGMA busy_timeout").fetchone() == (5_000,)


@pytest.mark.parametrize("writing", [False, True])
def test_connections_that_only_read_can_change_nothing(
    storage: SqliteStorage, writing: bool
) -> None:
    db = connection_of(storage, writing=writing)
    assert db.execute("PRAGMA query_only").fetchone() == (int(not writing),)


def test_a_database_that_lost_its_write_ahead_log_mode_gets_it_back(path: Path) -> None:
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        db.execute("PRAGMA query_only=OFF")
        assert db.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_leaving_the_rollback_journal_waits_for_another_process_that_writes(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    with closing(Database(path)) as other, closing(Database(path)) as db:
        other.execute("BEGIN IMMEDIATE")

        def release(statement: str) -> None:
            if statement.startswith("BEGIN"):
                other.rollback()

        db.conn.set_trace_callback(release)
        _use_write_ahead_log(db.conn)
        assert db.journal_mode == "wal"


def test_each_thread_reads_on_a_connection_of_its_own(storage: SqliteStorage) -> None:
    connections = at_once(4, lambda _: [connection_of(storage), connection_of(storage)])
    assert all(first is second for first, second in connections)
    assert len({id(first) for first, _ in connections}) == 4


def test_nothing_is_opened_before_it_is_needed(tmp_path: Path) -> None:
    with closing(SqliteStorage(tmp_path / "not made yet.db")):
        assert list(tmp_path.iterdir()) == []


def test_closing_closes_the_connections_of_all_threads(path: Path, storage: SqliteStorage) -> None:
    add_session(storage)
    others = at_once(3, lambda _: connection_of(storage))
    wal = path.with_name(f"{path.name}-wal")
    assert wal.exists()
    storage.close()
    assert not wal.exists()
    for db in others:
        with pytest.raises(Error):
            db.execute("SELECT 1")


def test_a_closed_storage_may_be_closed_again_and_connects_anew(storage: SqliteStorage) -> None:
    add_session(storage)
    storage.close()
    storage.close()
    assert has_session(storage)


def test_the_connection_of_a_thread_that_has_ended_is_closed(storage: SqliteStorage) -> None:
    elsewhere(lambda: has_session(storage))
    gc.collect()
    assert len(storage._connections._readers) == 0


def test_a_write_unit_gives_up_when_another_process_writes_too_long(
    path: Path, storage: SqliteStorage
) -> None:
    with writing_elsewhere(path):
        with pytest.raises(ServiceUnavailable):
            add_session(storage)
        with pytest.raises(ServiceUnavailable):
            storage.check()
        assert not has_session(storage)
    storage.check()
    add_session(storage)
    assert has_session(storage)


def test_a_write_unit_gives_up_when_another_thread_writes_too_long(storage: SqliteStorage) -> None:
    def is_refused() -> bool:
        with pytest.raises(ServiceUnavailable):
            add_session(storage)
        return True

    with storage.write():
        assert elsewhere(is_refused)
    add_session(storage)


def test_a_write_unit_waits_for_one_that_ends_in_time(path: Path) -> None:
    with closing(SqliteStorage(path, busy_timeout_seconds=30)) as storage:
        first = closing(connect(path, busy_timeout_seconds=0))
        with first as db:
            db.execute("PRAGMA query_only=OFF")

            def release_or_write(number: int) -> None:
                if number == 0:
                    db.execute("COMMIT")
                else:
                    add_session(storage)

            db.execute("BEGIN IMMEDIATE")
            at_once(2, release_or_write)
        assert has_session(storage)


def test_who_comes_when_many_wait_to_write_does_not_wait_as_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "QUEUE_FULL_SECONDS", 0)

    def write(_: int) -> None:
        with storage.write():
            pass

    with (
        closing(SqliteStorage(path, busy_timeout_seconds=30)) as storage,
        ThreadPoolExecutor(connection.MAX_QUEUED_WRITERS) as pool,
    ):
        with storage.write():
            waiting = pool.map(write, range(connection.MAX_QUEUED_WRITERS))
            wait_until(lambda: storage._connections._queue._value == 0)
            with pytest.raises(ServiceUnavailable):
                elsewhere(lambda: write(0))
        assert len(list(waiting)) == connection.MAX_QUEUED_WRITERS
        elsewhere(lambda: write(0))


def test_readers_are_served_while_another_process_writes(
    path: Path, storage: SqliteStorage
) -> None:
    with writing_elsewhere(path):
        assert not has_session(storage)


@pytest.mark.slow
def test_the_write_ahead_log_stays_small_and_grows_no_more_once_a_long_reader_has_gone(
    path: Path, storage: SqliteStorage
) -> None:
    wal = path.with_name(f"{path.name}-wal")
    guests = [a_guest(id=GuestId(a_uuid(number))) for number in range(1_000)]

    def write_and_read_much() -> int:
        for _ in range(100):
            with storage.write() as unit:
                unit.guests.put_many(guests)
                unit.commit()
            assert not has_session(storage)
        return wal.stat().st_size

    # Units of others are over as well, though their threads and connections are not.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: has_session(storage), range(4)))
        small = write_and_read_much()
    with closing(connect(path, busy_timeout_seconds=0)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM guests").fetchone()
        grown = write_and_read_much()
    # By default SQLite moves what is in it to the database after 1,000 pages.
    assert small < 2 * 1_000 * PAGE_BYTES < grown
    assert write_and_read_much() < grown + 1_000 * PAGE_BYTES


def test_a_commit_that_fails_leaves_nothing_behind(path: Path, storage: SqliteStorage) -> None:
    assert not has_session(storage)
    with storage.write() as unit:
        unit.sessions.add(a_session())
        unit.guests.put_many([a_guest()])
        with full_disk(), pytest.raises(ServiceUnavailable) as refused:
            unit.commit()
        assert isinstance(refused.value.__cause__, FileUnusable)
        assert str(path) in str(refused.value.__cause__)
    assert not connection_of(storage).conn.in_transaction
    with storage.read() as reading:
        assert reading.sessions.get(TOKEN_ID) is None
        assert reading.guests.get(GUEST_ID) is None
    add_session(storage)
    assert has_session(storage)


def test_all_threads_write_on_one_connection(storage: SqliteStorage) -> None:
    writer = elsewhere(lambda: connection_of(storage, writing=True))
    assert connection_of(storage, writing=True) is writer
    assert connection_of(storage) is not writer


def test_a_unit_that_was_undone_cannot_be_committed(storage: SqliteStorage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        connection = storage._connections._writer
        assert connection is not None
        connection.rollback()
        with pytest.raises(ServiceUnavailable):
            unit.commit()
    assert not has_session(storage)


def test_a_connection_that_cannot_be_cleared_is_given_up(storage: SqliteStorage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        assert storage._connections._writer is not None
        storage._connections._writer.close()
    assert not has_session(storage)
    add_session(storage)


def test_a_missing_file_is_unavailable_and_not_made(tmp_path: Path) -> None:
    path = tmp_path / "mistyped.db"
    with closing(SqliteStorage(path)) as storage:
        with pytest.raises(ServiceUnavailable):
            has_session(storage)
        with pytest.raises(ServiceUnavailable):
            storage.check()
    assert not path.exists()


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    path.write_bytes(b"no database" * 1_000)
    with closing(SqliteStorage(path)) as storage, pytest.raises(ServiceUnavailable):
        storage.check()
    assert path.read_bytes() == b"no database" * 1_000


def test_a_database_without_tables_does_not_pass_the_check(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    path.touch()
    with closing(SqliteStorage(path)) as storage, pytest.raises(ServiceUnavailable):
        storage.check()


def test_a_mistake_in_a_statement_is_not_taken_for_an_outage(path: Path) -> None:
    connections = Connections(path, busy_timeout_seconds=0)
    with (
        closing(connections),
        pytest.raises(Error, match="no such table"),
        connections.transaction(writing=True) as db,
    ):
        db.execute("INSERT INTO centres (id) VALUES ('x')")


def test_a_center_with_products_cannot_vanish_under_them(storage: SqliteStorage) -> None:
    with storage.write() as unit:
        unit.centers.put_many([a_center()])
        unit.commit()
    with storage._connections.transaction(writing=True) as db:
        db.execute(
            "INSERT INTO products VALUES ('p', :id, 1, '', '', '', '1', 'EUR', 1)",
            {"id": CENTER_ID},
        )
        with pytest.raises(Error, match="FOREIGN KEY"):
            db.execute("DELETE FROM centers")


def test_an_sqlite_that_may_corrupt_databases_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_SAFE_SQLITE", (99, 0, 0))

    with pytest.raises(SqliteIsTooOld, match="may corrupt a database"):
        connect(path, busy_timeout_seconds=1)


def test_times_become_text_in_the_order_of_time(storage: SqliteStorage) -> None:
    base = datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC)
    east = timezone(timedelta(hours=9))
    times = [
        base,
        base + timedelta(microseconds=1),
        (base + timedelta(microseconds=10)).astimezone(east),
        base + timedelta(milliseconds=500),
        (base + timedelta(seconds=1)).astimezone(east),
    ]
    with storage._connections.transaction(writing=False) as transaction:
        texts = [transaction.one("SELECT :time", {"time": time})[0] for time in times]
    assert texts == sorted(texts)
    assert {len(text) for text in texts} == {32}
