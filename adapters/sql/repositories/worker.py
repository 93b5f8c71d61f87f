"""Heartbeats of background workers."""

from __future__ import annotations

from datetime import datetime

import msgspec
from typing_extensions import override

from adapters.sql.repositories.repository import Repository
from domain.worker.heartbeat import WorkerHeartbeats


class SqlWorkerHeartbeats(Repository, WorkerHeartbeats):
    """The last heartbeat of any worker, in one row."""

    @override
    def last(self) -> datetime | None:
        row = self._transaction.execute("SELECT left_at FROM worker_heartbeats").fetchone()
        return None if row is None else msgspec.convert(row[0], datetime)

    @override
    def leave(self, now: datetime) -> None:
        self._transaction.execute(
            "INSERT INTO worker_heartbeats (id, left_at) VALUES (1, :now) "
            "ON CONFLICT (id) DO UPDATE SET left_at = excluded.left_at",
            {"now": now},
        )
