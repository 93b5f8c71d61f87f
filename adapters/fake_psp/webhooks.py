"""Sends the fake PSP's events over HTTP, from its database, until somebody takes them."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Final
from urllib.parse import urlsplit

import structlog

from adapters.fake_psp import signatures
from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.psp import DueEvent, FakePsp

RETRY_AFTER: Final = (
    timedelta(seconds=1),
    timedelta(seconds=5),
    timedelta(seconds=30),
    timedelta(minutes=2),
    timedelta(minutes=10),
)
RETRY_EVERY: Final = timedelta(hours=1)
GIVE_UP_AFTER: Final = timedelta(days=3)

_TIMEOUT_SECONDS: Final = 5.0
# Longer than a delivery takes, so that two processes do not send one event at the same time.
_CLAIM: Final = timedelta(seconds=30)
_LOOK_EVERY_SECONDS: Final = 2.0
_STOP_WITHIN_SECONDS: Final = 3 * _TIMEOUT_SECONDS

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


class WebhookSender:
    """Delivers events in a thread of its own, between `start` and `stop`."""

    def __init__(self, psp: FakePsp, *, url: str) -> None:
        """Take the PSP, and the http or https address that events are posted to.

        Raises ValueError when it is another address.
        """
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or parts.hostname is None:
            raise ValueError("webhooks are sent to an http or https address")
        self._psp = psp
        self._host = parts.hostname
        self._port = parts.port
        self._connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._path = parts.path or "/"
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start delivering in the background. Called while it runs, it does nothing."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="fake-psp-webhooks", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop once the delivery in progress is over (15 seconds at most). Twice is fine."""
        self._stopping.set()
        self._psp.events_written.set()
        if self._thread is not None:
            self._thread.join(_STOP_WITHIN_SECONDS)
            self._thread = None

    def deliver_due(self, now: datetime) -> int:
        """Try every event once that is due at `now`; give how many were taken.

        After `stop` it delivers nothing. Raises PspUnavailable.
        """
        delivered = 0
        while not self._stopping.is_set():
            # Earlier deliveries may have been slow: a claim lasts from when it is made.
            event = self._psp.take_due_event(now, until=self._psp.clock.now() + _CLAIM)
            if event is None:
                break
            delivered += self._deliver(event, now)
        return delivered

    def _run(self) -> None:
        is_away = False
        while True:
            # Cleared before anything is looked at, so that no news and no stop is slept over.
            self._psp.events_written.clear()
            if self._stopping.is_set():
                return
            try:
                self.deliver_due(self._psp.clock.now())
                is_away = False
            except PspUnavailable as unavailable:
                if not is_away:
                    _log.warning("fake_psp_database_unavailable", cause=str(unavailable))
                is_away = True
            except Exception as fault:  # noqa: BLE001 - nobody would start this thread again
                _log.error("webhook_sender_fault", exc_info=fault)
            self._psp.events_written.wait(_LOOK_EVERY_SECONDS)

    def _deliver(self, event: DueEvent, now: datetime) -> bool:
        answer = self._post(event.body)
        if answer.startswith("2"):
            self._psp.strike_event(event)
            return True
        if event.age >= GIVE_UP_AFTER:
            _log.error("webhook_given_up", event_id=event.id, tries=event.tries, answer=answer)
            self._psp.strike_event(event)
            return False
        wait = RETRY_AFTER[event.tries - 1] if event.tries <= len(RETRY_AFTER) else RETRY_EVERY
        _log.warning("webhook_not_taken", event_id=event.id, tries=event.tries, answer=answer)
        self._psp.postpone_event(event, now + wait)
        return False

    def _post(self, body: bytes) -> str:
        """Give the status of the answer, or the name of what went wrong."""
        connection = self._connection(self._host, self._port, timeout=_TIMEOUT_SECONDS)
        headers = {
            "Content-Type": "application/json",
            signatures.HEADER: signatures.sign(
                body, secret=self._psp.webhook_secret, now=self._psp.clock.now()
            ),
        }
        try:
            connection.request("POST", self._path, body, headers)
            return str(connection.getresponse().status)
        except (OSError, HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()
