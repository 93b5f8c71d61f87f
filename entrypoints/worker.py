"""The background worker: the reconciler, and the background work of PSPs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Final

import structlog

from domain.worker_heartbeat import BEAT_EVERY
from entrypoints.container import Container
from entrypoints.reconciler import Chore, Reconciler

STOP_SECONDS: Final = 20
FORGET_KEYS_EVERY: Final = timedelta(hours=1)

log = structlog.get_logger()


class Worker:
    """Runs the reconciler and the background work of PSPs, in threads of their own."""

    def __init__(self, container: Container, *, base_url: str) -> None:
        """Take the URL at which PSPs' webhooks reach the service. Raises SettingsError."""
        settings = container.settings()
        self._reconciler = Reconciler(
            settle=container.settle_in_worker(),
            discard_token=container.discard_token(),
            breakers=container.breakers(),
            clock=container.clock(),
            work=container.work_for_reconciler(),
            chores=[
                Chore(every=BEAT_EVERY, do=container.leave_heartbeat()),
                Chore(every=FORGET_KEYS_EVERY, do=container.forget_idempotency_keys()),
            ],
            threads=settings.worker_threads,
        )
        self._psp_work = [
            work
            for name, adapter in container.psp_adapters().items()
            if (work := settings.psps[name].background(adapter, f"{base_url}/webhooks/{name}"))
        ]

    def start(self) -> None:
        """Start in the background; once."""
        self._reconciler.start()
        for each in self._psp_work:
            _log_faults(each.start)

    def stop(self) -> None:
        """Finish the work under way, and stop. A PSP's background work gets 20 seconds."""
        self._reconciler.stop()
        stopping = [
            threading.Thread(target=_log_faults, args=(each.stop,), daemon=True)
            for each in self._psp_work
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join(STOP_SECONDS)


def _log_faults(do: Callable[[], None]) -> None:
    """Call a PSP's code. If it fails, log that and go on."""
    try:
        do()
    except Exception as fault:
        log.error("psp_background_fault", exc_info=fault)
