"""Workers store a heartbeat, by which every process can see whether a worker runs."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from domain.outside import Clock
from domain.storage import Storage, WriteUnit

BEAT_EVERY: Final = timedelta(seconds=20)
"""How often a worker stores a heartbeat. It is missing after three times that."""
MISSED_AFTER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveHeartbeat:
    """Use case: store a heartbeat. Raises ServiceUnavailable."""

    storage: Storage
    clock: Clock

    def __call__(self) -> None:
        now = self.clock.now()

        def leave(unit: WriteUnit) -> None:
            unit.worker_heartbeats.leave(now)
            unit.commit()

        self.storage.transact(leave)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsWorkerMissing:
    """Use case: return whether the last heartbeat is over a minute old. Raises ServiceUnavailable.

    One that is over a minute ahead, left by a clock that was wrong, is none. `watching_since` is
    when this process started: a worker has a minute from then to start.
    """

    storage: Storage
    clock: Clock
    watching_since: datetime

    def __call__(self) -> bool:
        with self.storage.read() as unit:
            last = unit.worker_heartbeats.last()
        now, times = self.clock.now(), (last or self.watching_since, self.watching_since)
        return all(abs(now - time) > MISSED_AFTER for time in times)
