"""The heartbeats that background workers leave."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class WorkerHeartbeats(Protocol):
    """When a background worker last ran, in any process."""

    def last(self) -> datetime | None:
        """Return the time of the last heartbeat, or None before the first."""
        ...

    def leave(self, now: datetime) -> None:
        """Store a heartbeat."""
        ...
