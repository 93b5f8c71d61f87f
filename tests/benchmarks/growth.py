"""Add-card where more and more sessions are stored, up to ten million."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Final

import pysqlite3

from adapters.psp.contract.samples import NOW, a_uuid
from adapters.sqlite.storage import SqliteStorage
from domain.card_sessions import SessionStatus
from domain.identifiers import AccountId, TokenId
from tests.benchmarks.load import WARM_UP_SECONDS, add_cards
from tests.benchmarks.machine import describe
from tests.benchmarks.pages import RANDOM_UUID
from tests.benchmarks.results import Grown, Growth
from tests.benchmarks.servers import OURS, Sample, make_site
from tests.builders import a_page, a_session, an_attempt

SIZES: Final = (1_000, 100_000, 1_000_000, 10_000_000)
CONNECTIONS: Final = (1, 16)

WITH_CARD: Final = 4
"""Each fourth session has collected a card; the links of the others were never opened."""

_COMPLETED: Final = TokenId(a_uuid(1))
_EXPIRED: Final = TokenId(a_uuid(2))


def measure(
    folder: Path, sample: Sample, *, rounds: int, seconds: int, say: Callable[[str], None]
) -> Growth:
    """Have a server for each size run all the time, and load one after the other."""
    grown = []
    sizes_mb = {}
    with ExitStack() as stack:
        servers = []
        for sessions in SIZES:
            say(f"{sessions:,} sessions")
            site = make_site(OURS, folder / str(sessions), sample)
            database = site.folder / "cards.db"
            fill(database, sessions)
            sizes_mb[str(sessions)] = round(database.stat().st_size / 1e6, 1)
            servers.append((sessions, stack.enter_context(site.running())))
        for number in range(1, rounds + 1):
            say(f"add-card, round {number} of {rounds}")
            first = (number - 1) % len(servers)
            for sessions, server in servers[first:] + servers[:first]:
                add_cards(server, connections=16, seconds=WARM_UP_SECONDS)
                grown += [
                    Grown(
                        sessions=sessions,
                        connections=connections,
                        round=number,
                        load=add_cards(server, connections=connections, seconds=seconds),
                    )
                    for connections in CONNECTIONS
                ]
    return Growth(
        machine=describe(folder),
        rounds=rounds,
        seconds=seconds,
        database_mb=sizes_mb,
        add_card=grown,
    )


def fill(database: Path, sessions: int) -> None:
    """Store so many sessions that have ended, as copies of two that the service stored."""
    opened = a_session(token_id=_COMPLETED, attempt=an_attempt())
    unopened = a_session(token_id=_EXPIRED, status=SessionStatus.EXPIRED, due_at=None, ended_at=NOW)
    with closing(SqliteStorage(database)) as storage, storage.write() as unit:
        unit.sessions.add(opened.completed(AccountId(a_uuid(3)), NOW))
        unit.sessions.add(unopened)
        unit.commit()
    with closing(pysqlite3.connect(database, isolation_level=None)) as db:
        # Nothing is lost if this is: it is made again.
        db.execute("PRAGMA journal_mode=OFF")
        db.execute("PRAGMA synchronous=OFF")
        db.execute("PRAGMA cache_size=-1500000")
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
            "ON ended.token_id = CASE n % :with_card WHEN 0 THEN :completed ELSE :expired END",
            {
                "sessions": sessions,
                "page": a_page().reference,
                "completed": _COMPLETED,
                "expired": _EXPIRED,
                "with_card": WITH_CARD,
            },
        )
        db.execute("PRAGMA journal_mode=WAL")
    # What the system still has to write would be in the way of what is measured.
    with database.open("rb") as file:
        os.fsync(file.fileno())
