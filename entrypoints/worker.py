"""The background worker: the reconciler, and the sender of the fake PSP's webhooks."""

from __future__ import annotations

import time
from collections.abc import Callable

from adapters.fake_psp.webhooks import WebhookSender
from domain.reconcile import Round
from domain.worker_heartbeat import BEAT_EVERY
from entrypoints.container import Container
from entrypoints.reconciler import ReconcilerThread, Reconciling


class Worker:
    """Settles sessions, discards cards and sends the fake PSP's webhooks in threads of its own."""

    def __init__(self, container: Container, *, fake_webhook_url: str) -> None:
        """Take where the fake PSP's webhooks go, if it is allowed. Raises PspUnavailable."""
        self._reconciler = ReconcilerThread(
            BeatingReconciler(container.reconcile(), container.leave_heartbeat()),
            container.work_for_reconciler(),
        )
        self._webhooks: WebhookSender | None = None
        if container.settings().fake_psp_is_allowed:
            self._webhooks = WebhookSender(container.fake_psp(), url=fake_webhook_url)

    def start(self) -> None:
        """Start in the background; once."""
        self._reconciler.start()
        if self._webhooks is not None:
            self._webhooks.start()

    def stop(self) -> None:
        """Stop after what is under way."""
        if self._webhooks is not None:
            self._webhooks.stop()
        self._reconciler.stop()


class BeatingReconciler:
    """Leaves a heartbeat every 20 seconds, between two sessions if a round takes long."""

    def __init__(
        self,
        reconcile: Reconciling,
        leave_heartbeat: Callable[[], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._reconcile = reconcile
        self._leave_heartbeat = leave_heartbeat
        self._now = now
        self._next_beat_at = now()

    def __call__(self, *, is_stopping: Callable[[], bool]) -> Round:
        """Do one round. Raises ServiceUnavailable."""

        def is_stopping_and_beat() -> bool:
            if self._now() >= self._next_beat_at:
                self._leave_heartbeat()
                self._next_beat_at = self._now() + BEAT_EVERY.total_seconds()
            return is_stopping()

        return self._reconcile(is_stopping=is_stopping_and_beat)
