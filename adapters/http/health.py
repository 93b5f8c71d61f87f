"""Liveness and readiness: `/healthz` and `/readyz`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog

from adapters.http.operations import Operation, Tag
from adapters.http.responses import Health
from domain.errors import ServiceUnavailable
from domain.storage import Storage

CHECK_EVERY_SECONDS: Final = 60.0
"""How often a process checks whether a worker runs, even if nobody requests `/readyz`."""

READY: Final = "ready"
READY_WITHOUT_WORKER: Final = "ready, but no worker has run for a minute"

log = structlog.get_logger()


class WorkerWatch:
    """Checks whether a worker runs. Logs when no worker runs, and when a worker runs again."""

    def __init__(
        self, is_missing: Callable[[], bool], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_missing = is_missing
        self._now = now
        self._was_missing = False
        self._next_check_at = now() + CHECK_EVERY_SECONDS

    def is_missing(self) -> bool:
        """Return whether no worker has run for a minute. Raises ServiceUnavailable."""
        is_missing = self._is_missing()
        if is_missing and not self._was_missing:
            log.error("worker_missing")
        if self._was_missing and not is_missing:
            log.warning("worker_back")
        self._was_missing = is_missing
        return is_missing

    def check_if_due(self) -> None:
        """At most once a minute, check whether a worker is running.

        Does nothing while the storage is unavailable.
        """
        if self._now() >= self._next_check_at:
            self._next_check_at = self._now() + CHECK_EVERY_SECONDS
            with suppress(ServiceUnavailable):
                self.is_missing()


@dataclass(frozen=True, kw_only=True)
class HealthChecks:
    """Responds to the probes for liveness and readiness."""

    storage: Storage
    workers: WorkerWatch

    @Operation(
        method="get",
        path="/healthz",
        name="alive",
        tag=Tag.SERVICE,
        summary="Whether the process is alive",
        description="Checks nothing else.",
        also_head=True,
    )
    def alive(self) -> Health:
        """Respond with 200, even if the storage is unavailable or no worker runs."""
        return Health(status="ok")

    @Operation(
        method="get",
        path="/readyz",
        name="ready",
        tag=Tag.SERVICE,
        summary="Whether the service can read and write its records",
        description="If no worker runs, `status` states that. This is not an error.",
        also_head=True,
    )
    def ready(self) -> Health:
        """Respond with 200 if records can be read and written, or with 503 if they cannot.

        If no worker runs, the response is still 200, but its `status` states that.
        """
        self.storage.check()
        return Health(status=READY_WITHOUT_WORKER if self.workers.is_missing() else READY)
