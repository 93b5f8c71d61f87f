"""The background worker: the reconciler, and what PSPs run beside it."""

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
    """Settles sessions and discards cards in threads of its own, and runs what PSPs bring."""

    def __init__(self, container: Container, *, base_url: str) -> None:
        """Take where webhooks reach the service. Raises what a PSP raises when it is made."""
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
        self._of_psps = [
            work
            for name, adapter in container.psp_adapters().items()
            if (work := settings.psps[name].background(adapter, f"{base_url}/webhooks/{name}"))
        ]

    def start(self) -> None:
        """Start in the background; once."""
        self._reconciler.start()
        for each in self._of_psps:
            _outlive(each.start)

    def stop(self) -> None:
        """Stop after what is under way."""
        self._reconciler.stop()
        # One of them may hang, which is no reason to stay.
        stopping = [
            threading.Thread(target=_outlive, args=(each.stop,), daemon=True)
            for each in self._of_psps
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join(STOP_SECONDS)


def _outlive(do: Callable[[], None]) -> None:
    """Have a PSP do something of its own; when it fails, the service goes on without it."""
    try:
        do()
    except Exception as fault:
        log.error("psp_background_fault", exc_info=fault)
