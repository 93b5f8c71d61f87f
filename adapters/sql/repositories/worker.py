"""Background workers, and their heartbeats."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

import msgspec
from typing_extensions import override

from adapters.sql.repositories.repository import Repository
from adapters.sql.rows import Rows
from domain.identifiers import WorkerId
from domain.worker.heartbeat import SeenWorker, WorkerProcess, Workers, WorkerState


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heartbeat(WorkerProcess):
    state: WorkerState
    since: datetime
    seen_at: datetime

    @property
    def worker(self) -> WorkerProcess:
        return WorkerProcess(
            worker_id=self.worker_id, host=self.host, pid=self.pid, release=self.release
        )


_HEARTBEATS = Rows("workers", _Heartbeat, key=("worker_id",))


class SqlWorkers(Repository, Workers):
    """Stores one row for each worker. The dialect decides which clock the times come from."""

    @override
    def leave_heartbeat(
        self, worker: WorkerProcess, now: datetime, state: WorkerState = WorkerState.RUNNING
    ) -> None:
        time = self._dialect.now
        self._transaction.execute(
            "INSERT INTO workers (worker_id, host, pid, release, state, since, seen_at) "
            f"VALUES (:worker_id, :host, :pid, :release, :state, {time}, {time}) "
            "ON CONFLICT (worker_id) DO UPDATE "
            "SET state = excluded.state, seen_at = excluded.seen_at",
            {**asdict(worker), "state": state, "now": now},
        )

    @override
    def seen(self, now: datetime) -> Sequence[SeenWorker]:
        rows = self._transaction.execute(
            f"SELECT {self._dialect.now}, {_HEARTBEATS.listed} FROM workers "
            "ORDER BY since, worker_id",
            {"now": now},
        ).fetchall()
        return [
            SeenWorker(
                worker=beat.worker,
                state=beat.state,
                since=beat.since,
                age=msgspec.convert(time, datetime) - beat.seen_at,
            )
            for time, *row in rows
            if (beat := _HEARTBEATS.record_or_none(row))
        ]

    @override
    def lose(self, worker_id: WorkerId) -> bool:
        lost = self._transaction.execute(
            "UPDATE workers SET state = :lost WHERE worker_id = :worker_id AND state = :running",
            {"worker_id": worker_id, "lost": WorkerState.LOST, "running": WorkerState.RUNNING},
        )
        return lost.rowcount == 1

    @override
    def forget(self, worker_id: WorkerId) -> None:
        self._transaction.execute(
            "DELETE FROM workers WHERE worker_id = :worker_id", {"worker_id": worker_id}
        )
