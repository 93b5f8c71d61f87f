"""Counting syncs while cards are added one after another."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.adapters.postgresql.by_hand import execute
from tests.entrypoints.load import Clients, Machines, one_machine_on_sqlite
from tests.postgresql import new_database, own_server
from tests.programs import SERVE
from tests.system_calls import Call, SystemCalls

_SYNCS_OF_WAL = """
    SELECT sum(fsyncs)::integer FROM pg_stat_io
    WHERE object = 'wal' AND backend_type IN ('client backend', 'walwriter')
"""


def calls_on_sqlite(folder: Path, *, writes: int) -> list[Call]:
    """Return the system calls of a service on SQLite while `writes` cards are added."""
    with SystemCalls() as calls, closing(one_machine_on_sqlite(folder)) as machines:
        # The worker would write in between.
        machines.each[0].start(calls.source(SERVE), "--no-worker")
        calls.attach()
        machines.wait_until_ready()
        calls.made.clear()
        _add_cards(machines, writes)
        return list(calls.made)


def syncs_on_postgresql(folder: Path, *, writes: int) -> int:
    """Return how often PostgreSQL synced its write-ahead log while `writes` cards were added."""
    with (
        own_server({"fsync": "on"}) as server,
        new_database(server.url) as url,
        closing(Machines(folder, url, machines=1)) as machines,
    ):
        machines.start()
        # Server processes publish their statistics when they end, at the latest.
        ((before,),) = execute(url, _SYNCS_OF_WAL)
        _add_cards(machines, writes)
        assert machines.each[0].stop() == 0
        ((after,),) = execute(url, _SYNCS_OF_WAL)
        return int(after - before)


def _add_cards(machines: Machines, number: int) -> None:
    clients = Clients(machines, "syncs", 1)
    with closing(clients):
        for _ in range(number):
            assert clients.each[0].try_to_add_card(0) == 200
