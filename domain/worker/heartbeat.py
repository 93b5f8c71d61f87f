"""The background workers of an installation, and the heartbeats that they leave."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final, Protocol

from domain.identifiers import WorkerId

BEAT_EVERY: Final = timedelta(seconds=20)
"""How often a worker stores a heartbeat. It is missing after three times that."""
MISSED_AFTER: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerProcess:
    """A background worker, from its start to its end: where it runs, and which release."""

    worker_id: WorkerId
    host: str
    pid: int
    release: str


class WorkerState(StrEnum):
    """What is known of a worker. One that was killed is RUNNING until another finds it LOST."""

    RUNNING = "running"
    STOPPED = "stopped"
    LOST = "lost"


@dataclass(frozen=True, slots=True, kw_only=True)
class SeenWorker:
    """A worker with its state, the time of its first heartbeat, and the age of its last one.

    The age is negative for a heartbeat from a time to come, left by a clock that was wrong.
    """

    worker: WorkerProcess
    state: WorkerState
    since: datetime
    age: timedelta

    @property
    def is_missing(self) -> bool:
        """Whether it has not been seen for a minute, or only in a time to come."""
        return is_missed(self.age)

    @property
    def is_gone(self) -> bool:
        """Whether it is missing, and did not stop."""
        return self.is_missing and self.state is not WorkerState.STOPPED


def is_missed(age: timedelta) -> bool:
    """Return whether a last heartbeat of this age is over a minute old, or as far ahead."""
    return abs(age) > MISSED_AFTER


class Workers(Protocol):
    """The workers that have left heartbeats, in any process.

    `now` is the time by the caller's clock. A storage that machines share uses its own clock
    instead, because theirs differ.
    """

    def leave_heartbeat(
        self, worker: WorkerProcess, now: datetime, state: WorkerState = WorkerState.RUNNING
    ) -> None:
        """Note that a worker is seen now, in this state."""
        ...

    def seen(self, now: datetime) -> Sequence[SeenWorker]:
        """Return all workers, in the order of their first heartbeats."""
        ...

    def lose(self, worker_id: WorkerId) -> bool:
        """Make a running worker a lost one. Return False when it is not running."""
        ...

    def forget(self, worker_id: WorkerId) -> None:
        """Delete a worker, if it is stored."""
        ...
