"""Whether the service is alive and ready: `/healthz` and `/readyz`."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import falcon
import structlog

from adapters.http.answers import Health, json_body
from domain.errors import ServiceUnavailable
from domain.ports import Storage

LOOK_EVERY_SECONDS: Final = 60.0
"""How often processes look for a worker that nobody asks about one."""

READY: Final = "ready"
READY_WITHOUT_WORKER: Final = "ready, but no worker has run for a minute"

log = structlog.get_logger()


class WorkerWatch:
    """Looks whether a worker runs, and says in the log when none does and when one does again."""

    def __init__(
        self, is_missing: Callable[[], bool], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._is_missing = is_missing
        self._now = now
        self._was_missing = False
        self._next_look_at = now() + LOOK_EVERY_SECONDS

    def is_missing(self) -> bool:
        """Tell whether no worker has run for a minute. Raises ServiceUnavailable."""
        is_missing = self._is_missing()
        if is_missing and not self._was_missing:
            log.error("worker_missing")
        if self._was_missing and not is_missing:
            log.warning("worker_back")
        self._was_missing = is_missing
        return is_missing

    def look_now_and_then(self) -> None:
        """Look, unless that was done within the last minute. It never fails."""
        if self._now() >= self._next_look_at:
            self._next_look_at = self._now() + LOOK_EVERY_SECONDS
            with suppress(ServiceUnavailable):
                self.is_missing()


class Alive:
    """Liveness: the process answers, whatever else is wrong."""

    def on_get(self, _: falcon.Request, resp: falcon.Response) -> None:
        """Answer 200."""
        json_body(resp, Health(status="ok"))

    on_head = on_get


@dataclass(frozen=True, kw_only=True)
class Ready:
    """Readiness: records can be read and written. Without a worker cards are still added."""

    storage: Storage
    workers: WorkerWatch

    def on_get(self, _: falcon.Request, resp: falcon.Response) -> None:
        """Answer 200, or 503 while the storage is away."""
        self.storage.check()
        json_body(resp, Health(status=READY_WITHOUT_WORKER if self.workers.is_missing() else READY))

    on_head = on_get
