from __future__ import annotations

import gc
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Final
from uuid import UUID

import pytest
from sqlite_utils import Database
from structlog.testing import capture_logs

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID, TOKEN_ID
from adapters.sqlite import connection
from adapters.sqlite.connection import (
    Error,
    FileUnusable,
    SqliteIsTooOld,
    _use_write_ahead_log,
    connect,
)
from adapters.sqlite.storage import SqliteStorage
from domain.errors import ServiceUnavailable
from domain.identifiers import TokenId
from tests.builders import a_guest, a_session
from tests.concurrency import elsewhere
from tests.waiting import LIMIT_SECONDS, wait_until

PAGE_BYTES: Final = 4_096
CHECKPOINT_PAGES: Final = 1_000
"""At this size SQLite moves the write-ahead log into the database by default."""


@contextmanager
def writing_elsewhere(path: Path) -> Iterator[Database]:
    """Hold the write lock as another process would, until the block ends or a COMMIT."""
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        db.execute("PRAGMA query_only=OFF")
        db.execute("BEGIN IMMEDIATE")
        yield db


@contextmanager
def full_disk() -> Iterator[None]:
    """Prevent every file of this process from growing, as on a full disk."""
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


# Shows I1, F7.
@pytest.mark.parametrize("writing", [False, True])
def test_each_sqlite_connection_has_the_settings_that_keep_records_safe(
    path: Path, writing: bool
) -> None:
    with closing(SqliteStorage(path)) as storage:
        db = connection_of(storage, writing=writing)
        settings = {
            name: db.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "query_only")
        }
        busy_timeout = db.execute("PRAGMA busy_timeout").fetchone()[0]
    assert settings == {
        "journal_mode": "wal",
        "synchronous": 2,
        "foreign_keys": 1,
        "query_only": int(not writing),
    }
    # Writers wait for the lock themselves; readers for the recovery after a crash.
    assert busy_timeout == (0 if writing else 5_000)


def test_connecting_switches_the_database_back_to_write_ahead_logging(path: Path) -> None:
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        db.execute("PRAGMA query_only=OFF")
        assert db.execute("PRAGMA journal_mode=DELETE").fetchone() == ("delete",)
    with closing(connect(path, busy_timeout_seconds=0)) as db:
        assert db.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_switching_to_write_ahead_logging_waits_for_another_writing_process(tmp_path: Path) -> None:
    path = tmp_path / "cardonfile.db"
    with closing(Database(path)) as other, closing(Database(path)) as db:
        other.execute("BEGIN IMMEDIATE")

        def release(statement: str) -> None:
            if statement.startswith("BEGIN"):
                other.rollback()

        db.conn.set_trace_callback(release)
        _use_write_ahead_log(db.conn)
        assert db.journal_mode == "wal"


def test_each_thread_has_its_own_reading_connection_but_all_share_the_writing_connection(
    path: Path,
) -> None:
    # With a busy timeout, because connections that open at once lock the file for a moment.
    with closing(SqliteStorage(path)) as storage:
        readers = at_once(4, lambda _: [connection_of(storage), connection_of(storage)])
        assert all(first is second for first, second in readers)
        assert len({id(first) for first, _ in readers}) == 4
        writer = elsewhere(lambda: connection_of(storage, writing=True))
        assert connection_of(storage, writing=True) is writer


def test_closing_the_storage_closes_the_connections_of_all_threads(
    path: Path, storage: SqliteStorage
) -> None:
    add_session(storage)
    others = at_once(3, lambda _: connection_of(storage))
    wal = path.with_name(f"{path.name}-wal")
    assert wal.exists()
    storage.close()
    assert not wal.exists()
    for db in others:
        with pytest.raises(Error):
            db.execute("SELECT 1")


def test_the_connection_of_an_ended_thread_is_closed(storage: SqliteStorage) -> None:
    elsewhere(lambda: has_session(storage))
    gc.collect()
    assert len(storage._connections._readers) == 0


# Shows F12.
def test_a_write_unit_fails_if_another_process_or_thread_writes_too_long(
    path: Path, storage: SqliteStorage
) -> None:
    with writing_elsewhere(path):
        with pytest.raises(ServiceUnavailable):
            add_session(storage)
        with pytest.raises(ServiceUnavailable):
            storage.check()
        assert not has_session(storage)
    storage.check()
    with storage.write(), pytest.raises(ServiceUnavailable):
        elsewhere(lambda: add_session(storage))
    add_session(storage)


def test_a_write_unit_waits_for_another_write_unit(path: Path) -> None:
    with (
        closing(SqliteStorage(path, busy_timeout_seconds=LIMIT_SECONDS)) as storage,
        writing_elsewhere(path) as db,
    ):
        at_once(2, lambda number: add_session(storage) if number else db.execute("COMMIT"))
        assert has_session(storage)


# Shows F12.
def test_a_write_unit_is_refused_sooner_if_many_writers_are_already_waiting(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "QUEUE_FULL_SECONDS", 0)

    def write(_: int) -> None:
        with storage.write():
            pass

    with (
        closing(SqliteStorage(path, busy_timeout_seconds=LIMIT_SECONDS)) as storage,
        ThreadPoolExecutor(connection.MAX_QUEUED_WRITERS) as pool,
    ):
        with storage.write():
            waiting = pool.map(write, range(connection.MAX_QUEUED_WRITERS))
            wait_until(lambda: storage._connections._queue._value == 0)
            with pytest.raises(ServiceUnavailable):
                elsewhere(lambda: write(0))
        assert len(list(waiting)) == connection.MAX_QUEUED_WRITERS
        elsewhere(lambda: write(0))


def test_deleted_rows_stay_in_the_write_ahead_log_while_a_reader_is_open(
    path: Path, storage: SqliteStorage
) -> None:
    def change(name: str) -> None:
        with storage.write() as unit:
            unit.guests.put_many([a_guest(last_name=name)])
            unit.commit()

    change("Before")
    with closing(connect(path, busy_timeout_seconds=0)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM guests").fetchone()
        change("After")
        assert not storage.overwrite_deleted()
        change("Afterwards")
    assert storage.overwrite_deleted()
    assert path.with_name(f"{path.name}-wal").stat().st_size == 0


# Shows F13.
def test_the_write_ahead_log_stays_small_unless_a_reader_stays_open(
    path: Path, storage: SqliteStorage
) -> None:
    wal = path.with_name(f"{path.name}-wal")

    def write_and_read_much() -> int:
        for number in range(30):
            with storage.write() as unit:
                unit.guests.put_many([a_guest(last_name=str(number % 2) * 100 * PAGE_BYTES)])
                unit.commit()
            assert not has_session(storage)
        return wal.stat().st_size

    # Their threads and connections stay, but not their transactions.
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda _: has_session(storage), range(4)))
        small = write_and_read_much()
    with closing(connect(path, busy_timeout_seconds=0)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM guests").fetchone()
        grown = write_and_read_much()
    assert small < 2 * CHECKPOINT_PAGES * PAGE_BYTES < grown
    assert write_and_read_much() < grown + CHECKPOINT_PAGES * PAGE_BYTES


# Shows F8.
def test_a_failed_commit_changes_no_rows(path: Path, storage: SqliteStorage) -> None:
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


def test_a_transaction_rolled_back_by_sqlite_cannot_be_committed(storage: SqliteStorage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        assert storage._connections._writer is not None
        storage._connections._writer.rollback()
        with pytest.raises(ServiceUnavailable):
            unit.commit()
    assert not has_session(storage)


def test_a_connection_that_cannot_be_rolled_back_is_replaced(storage: SqliteStorage) -> None:
    with storage.write() as unit:
        unit.sessions.add(a_session())
        assert storage._connections._writer is not None
        storage._connections._writer.close()
    assert not has_session(storage)
    add_session(storage)


@pytest.mark.parametrize("content", [None, b"no database" * 1_000, b""])
def test_the_storage_check_fails_for_a_file_that_is_not_a_migrated_database(
    tmp_path: Path, content: bytes | None
) -> None:
    path = tmp_path / "cardonfile.db"
    if content is not None:
        path.write_bytes(content)
    with closing(SqliteStorage(path)) as storage, pytest.raises(ServiceUnavailable):
        storage.check()
    if content:
        assert path.read_bytes() == content
    assert path.exists() is (content is not None)


@pytest.mark.parametrize("holder", ["thread", "process"])
def test_the_wait_for_the_write_lock_is_measured_even_if_the_lock_is_not_obtained(
    path: Path, holder: str
) -> None:
    waits: list[float] = []
    with (
        closing(SqliteStorage(path, busy_timeout_seconds=0.05, on_wait=waits.append)) as storage,
        closing(SqliteStorage(path)) as other,
    ):
        add_session(storage)
        has_session(storage)
        assert len(waits) == 1

        def write_in_vain() -> None:
            with pytest.raises(ServiceUnavailable):
                add_session(storage)

        with (storage if holder == "thread" else other).write():
            elsewhere(write_in_vain)
    assert waits[-1] >= 0.05


def test_a_version_of_sqlite_that_may_corrupt_databases_is_refused(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "FIRST_SAFE_SQLITE", (99, 0, 0))

    with pytest.raises(SqliteIsTooOld, match="may corrupt a database"):
        connect(path, busy_timeout_seconds=1)


def test_times_are_stored_as_text_that_sorts_in_chronological_order(storage: SqliteStorage) -> None:
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


def replace_file(path: Path) -> None:
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    copy.replace(path)


def replace_link(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(path.read_bytes())
    link = path.with_name("link")
    link.symlink_to(other)
    link.replace(path)


# Shows F48.
@pytest.mark.parametrize(
    "replace",
    [
        replace_file,
        replace_link,
        Path.unlink,
        lambda path: Path(f"{path}-wal").unlink(),
        lambda path: Path(f"{path}-shm").unlink(),
    ],
)
def test_the_storage_refuses_all_work_after_its_database_file_was_replaced(
    path: Path, replace: Callable[[Path], None]
) -> None:
    told: list[None] = []
    with closing(SqliteStorage(path, on_replaced=lambda: told.append(None))) as storage:
        add_session(storage)
        storage.check()
        with capture_logs() as lines:
            with storage.write() as unit:
                unit.sessions.add(a_session(token_id=TokenId(str(UUID(int=1)))))
                replace(path)
                with pytest.raises(ServiceUnavailable):
                    unit.commit()
            for use in (
                storage.check,
                storage.overwrite_deleted,
                lambda: has_session(storage),
                # Another thread would open the file that is there now.
                lambda: elsewhere(lambda: has_session(storage)),
            ):
                with pytest.raises(ServiceUnavailable) as unavailable:
                    use()
                assert "was replaced or deleted" in str(unavailable.value.__cause__)
    assert [line["event"] for line in lines] == ["database_replaced"]
    assert told == [None]


def test_a_database_file_behind_a_symbolic_link_can_be_used(path: Path, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    link = tmp_path / "folder" / "link.db"
    link.symlink_to(path)
    with closing(SqliteStorage(link)) as storage:
        add_session(storage)
        storage.check()
        assert has_session(storage)
        storage.close()
        assert has_session(storage)
