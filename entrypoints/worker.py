"""The background worker: the reconciler, and the sender of the fake PSP's webhooks."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from adapters.fake_psp.webhooks import WebhookSender
from domain.worker_heartbeat import BEAT_EVERY
from entrypoints.container import Container
from entrypoints.reconciler import Chore, Reconciler

FORGET_KEYS_EVERY: Final = timedelta(hours=1)


class Worker:
    """Settles sessions, discards cards and sends the fake PSP's webhooks in threads of its own."""

    def __init__(self, container: Container, *, fake_webhook_url: str) -> None:
        """Take where the fake PSP's webhooks go, if it is allowed. Raises PspUnavailable."""
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
        self._webhooks: WebhookSender | None = None
        if settings.fake_psp_is_allowed:
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
