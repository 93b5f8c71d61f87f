"""The background workers of an installation, and their heartbeats."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from domain.identifiers import WorkerId

BEAT_EVERY: Final = timedelta(seconds=20)
"""How often a worker stores a heartbeat. A worker that misses three heartbeats is missing."""
MISSED_AFTER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """One run of a background worker, with its machine and its release."""

    worker_id: WorkerId
    host: str
    pid: int
    release: str


class WorkerState(StrEnum):
    """The state of a worker.

    A worker that was killed stays RUNNING until another worker marks it as LOST.
    """

    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWorker:
    """A worker, its state, the time of its first heartbeat, and the age of its last heartbeat.

    The age is negative if a wrong clock caused a heartbeat in the future.
    """

    worker: WorkerProcess
    state: WorkerState
    since: datetime
    age: timedelta

    @property
    def is_missing(self) -> bool:
        """Whether the worker's last heartbeat is more than a minute old, or too far in the future."""
        return is_missed(self.age)

    @property
    def is_gone(self) -> bool:
        """Whether the worker is missing, although it has not reported that it stopped."""
        return self.is_missing and self.state is not WorkerState.STOPPED

    def runs_before(self, release: tuple[int, int]) -> bool:
        """Return whether this worker has a release earlier than `release`, and is not missing.

        A worker that has just stopped also counts, because other processes of its release may still
        run. A worker whose release is not a version number does not count.
        """
        found = re.match(r"(\d+)\.(\d+)", self.worker.release)
        return (
            not self.is_missing and found is not None and (int(found[1]), int(found[2])) < release
        )


def is_missed(age: timedelta) -> bool:
    """Return whether a heartbeat is more than a minute old, or more than a minute in the future."""
    return abs(age) > MISSED_AFTER


class Workers(Protocol):
    """Repository of workers and their heartbeats.

    `now` is the time by the caller's clock. A storage that several machines share uses its own
    clock instead, because the machines' clocks may differ.
    """

    def leave_heartbeat(
        self, worker: WorkerProcess, now: datetime, state: WorkerState = WorkerState.RUNNING
    ) -> None:
        """Store a heartbeat of a worker in this state."""
        ...

    def seen(self, now: datetime) -> Sequence[SeenWorker]:
        """Return all workers, in the order of their first heartbeats."""
        ...

    def lose(self, worker_id: WorkerId) -> bool:
        """Mark a running worker as lost. Return False if it is not running."""
        ...

    def forget(self, worker_id: WorkerId) -> None:
        """Delete a worker, if it is stored."""
        ...
