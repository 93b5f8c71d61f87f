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
"""How often a worker stores a heartbeat. A worker is missing after three times this interval."""
MISSED_AFTER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """A background worker from its start to its end: its machine and its release."""

    worker_id: WorkerId
    host: str
    pid: int
    release: str


class WorkerState(StrEnum):
    """The state of a worker. A killed worker is RUNNING until another worker finds it LOST."""

    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWorker:
    """A worker with its state, the time of its first heartbeat, and the age of its last heartbeat.

    The age is negative if a clock that was wrong left a heartbeat in the future.
    """

    worker: WorkerProcess
    state: WorkerState
    since: datetime
    age: timedelta

    @property
    def is_missing(self) -> bool:
        """Whether the worker was not seen for a minute, or only in the future."""
        return is_missed(self.age)

    @property
    def is_gone(self) -> bool:
        """Whether the worker is missing and did not stop."""
        return self.is_missing and self.state is not WorkerState.STOPPED

    def runs_before(self, release: tuple[int, int]) -> bool:
        """Return whether the worker's release is earlier, such as 0.2 before 0.3.

        A worker that is missing does not count. A worker that has just stopped does, because other
        processes of its release may still run.
        """
        found = re.match(r"(\d+)\.(\d+)", self.worker.release)
        return (
            not self.is_missing and found is not None and (int(found[1]), int(found[2])) < release
        )


def is_missed(age: timedelta) -> bool:
    """Return whether a heartbeat of this age is over a minute old, or as far in the future."""
    return abs(age) > MISSED_AFTER


class Workers(Protocol):
    """The workers of all processes, by their heartbeats.

    `now` is the time by the caller's clock. A storage that machines share uses its own clock
    instead, because the machines' clocks differ.
    """

    def leave_heartbeat(
        self, worker: WorkerProcess, now: datetime, state: WorkerState = WorkerState.RUNNING
    ) -> None:
        """Store that a worker is seen now, in this state."""
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
