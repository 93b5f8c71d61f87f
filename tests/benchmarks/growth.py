"""Benchmark of add-card with an increasing number of stored sessions, up to ten million."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pysqlite3

from adapters.psp_suite.samples import NOW, a_uuid
from adapters.sqlite.storage import SqliteStorage
from domain.identifiers import AccountId, TokenId
from domain.sessions.end import SessionStatus
from tests.benchmarks.load import WARM_UP_SECONDS, add_cards
from tests.benchmarks.products import RANDOM_UUID
from tests.benchmarks.results import Row
from tests.benchmarks.servers import OURS, Sample, make_server
from tests.builders import a_page, a_session, an_attempt

SIZES: Final = (1_000, 100_000, 1_000_000, 10_000_000)
CONNECTIONS: Final = (1, 16)

_COMPLETED: Final = TokenId(a_uuid(1))
_EXPIRED: Final = TokenId(a_uuid(2))


def measure(
    folder: Path, sample: Sample, *, rounds: int, seconds: int, say: Callable[[str], None]
) -> Iterator[Row]:
    """Start a server for each size. In each round, put load on one server after another."""
    with ExitStack() as stack:
        servers = []
        for sessions in SIZES:
            say(f"{sessions:,} sessions")
            server = make_server(OURS, folder / str(sessions), sample)
            database = server.folder / "cards.db"
            fill(database, sessions)
            servers.append((sessions, round(database.stat().st_size / 1e6, 1), server))
            stack.enter_context(server.running())
        for number in range(1, rounds + 1):
            say(f"add-card, round {number} of {rounds}")
            first = (number - 1) % len(servers)
            for sessions, database_mb, server in servers[first:] + servers[:first]:
                add_cards(server, connections=16, seconds=WARM_UP_SECONDS)
                for connections in CONNECTIONS:
                    yield {
                        "sessions": sessions,
                        "database_mb": database_mb,
                        "connections": connections,
                        "round": number,
                        **add_cards(server, connections=connections, seconds=seconds),
                    }


def fill(database: Path, sessions: int) -> None:
    """Store copies of two ended sessions.

    A quarter of the copies are of a completed session. The others are of a session that expired
    without being opened.
    """
    opened = a_session(token_id=_COMPLETED, attempt=an_attempt())
    unopened = a_session(token_id=_EXPIRED, status=SessionStatus.EXPIRED, due_at=None, ended_at=NOW)
    with closing(SqliteStorage(database)) as storage, storage.write() as unit:
        unit.sessions.add(opened.completed(AccountId(a_uuid(3)), NOW))
        unit.sessions.add(unopened)
        unit.commit()
    with closing(pysqlite3.connect(database, isolation_level=None)) as db:
        # This file is filled for speed. It does not have to survive a crash.
        for pragma in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-1500000"):
            db.execute(f"PRAGMA {pragma}")
        columns = [name for _, name, *_ in db.execute("PRAGMA table_info(card_sessions)")]
        made = {
            "token_id": RANDOM_UUID,
            "guest_id": RANDOM_UUID,
            "attempt": "replace(attempt, :page, 'page_' || hex(randomblob(16)))",
        }
        db.execute(
            "WITH RECURSIVE numbers (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers "
            f"WHERE n < :sessions) INSERT INTO card_sessions ({', '.join(columns)}) "
            f"SELECT {', '.join(made.get(column, column) for column in columns)} "
            "FROM numbers CROSS JOIN (SELECT * FROM card_sessions WHERE token_id IN "
            "(:completed, :expired)) AS ended "
            "ON ended.token_id = CASE n % 4 WHEN 0 THEN :completed ELSE :expired END",
            {
                "sessions": sessions,
                "page": a_page().reference,
                "completed": _COMPLETED,
                "expired": _EXPIRED,
            },
        )
        db.execute("PRAGMA journal_mode=WAL")
    # Without this sync, the operating system would still write the file during the measurement.
    with database.open("rb") as file:
        os.fsync(file.fileno())
