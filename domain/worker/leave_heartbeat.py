"""Store the heartbeats of workers, so that every process can see whether a worker runs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from domain.outside import Clock
from domain.storage import Storage, WriteUnit
from domain.worker.heartbeat import WorkerProcess, WorkerState, is_missed

KEPT_FOR: Final = timedelta(days=1)
"""How long a worker stays stored after its last heartbeat."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveHeartbeat:
    """Use case: store a heartbeat of this worker, and return lost workers.

    A worker is lost if it did not stop and its last heartbeat is more than a minute old. Each lost
    worker is returned once, to one of the other workers. If a lost worker comes back and is lost
    again, it is returned again. If the last heartbeat of this worker is old too, no workers are
    returned, because the database may have been down, or the clock may have jumped. Raises
    ServiceUnavailable.
    """

    storage: Storage
    clock: Clock

    def __call__(
        self, worker: WorkerProcess, state: WorkerState = WorkerState.RUNNING
    ) -> Sequence[WorkerProcess]:
        now = self.clock.now()

        def leave(unit: WriteUnit) -> Sequence[WorkerProcess]:
            seen = unit.workers.seen(now)
            unit.workers.leave_heartbeat(worker, now, state)
            missing = {beat.worker: beat.age for beat in seen if beat.is_missing}
            is_witness = worker not in missing and any(beat.worker == worker for beat in seen)
            lost = [gone for gone in missing if is_witness and unit.workers.lose(gone.worker_id)]
            for gone, age in missing.items():
                if abs(age) > KEPT_FOR and gone != worker:
                    unit.workers.forget(gone.worker_id)
            unit.commit()
            return lost

        return self.storage.transact(leave)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsWorkerMissing:
    """Use case: return whether the last heartbeat of every worker is more than a minute old.

    Heartbeats more than a minute in the future are ignored. `watching_since` is the start of this
    process. In the first minute after it, the result is False, because a worker may still be
    starting. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock
    watching_since: datetime

    def __call__(self) -> bool:
        now = self.clock.now()
        with self.storage.read() as unit:
            are_missing = all(worker.is_missing for worker in unit.workers.seen(now))
        return are_missing and is_missed(now - self.watching_since)
