"""Send the fake PSP's events over HTTP, and retry until they are accepted."""

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
# The lease is longer than a delivery, so that other processes do not send the event meanwhile.
_CLAIM: Final = timedelta(seconds=30)
_CHECK_EVERY_SECONDS: Final = 2.0
_STOP_WITHIN_SECONDS: Final = 3 * _TIMEOUT_SECONDS

_log: structlog.typing.FilteringBoundLogger = structlog.get_logger(__name__)


class WebhookSender:
    """Delivers events in a background thread, between `start` and `stop`."""

    def __init__(self, psp: FakePsp, *, url: str) -> None:
        """Set the PSP, and the http or https address to which events are posted."""
        self._psp = psp
        self._url = urlsplit(url)
        self._stopping = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread, unless it is running."""
        if self._thread is None:
            self._stopping.clear()
            self._thread = threading.Thread(target=self._run, name="fake-psp-webhooks", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop after the current delivery, within 15 seconds. May be called twice."""
        self._stopping.set()
        self._psp.events_written.set()
        if self._thread is not None:
            self._thread.join(_STOP_WITHIN_SECONDS)
            self._thread = None

    def deliver_due(self, now: datetime) -> int:
        """Send every event that is due at `now`, and return how many were accepted.

        Events that are not accepted become due again later. After `stop`, nothing is sent. Raises
        PspUnavailable.
        """
        delivered = 0
        while not self._stopping.is_set():
            # The time is not counted from `now`, because earlier deliveries may have been slow.
            event = self._psp.take_due_event(now, until=self._psp.clock.now() + _CLAIM)
            if event is None:
                break
            delivered += self._deliver(event, now)
        return delivered

    def _run(self) -> None:
        is_away = False
        while True:
            # The flag is cleared first, so that any later event or stop ends the wait below.
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
            except Exception as fault:  # noqa: BLE001 - nothing restarts this thread
                _log.error("webhook_sender_fault", exc_info=fault)
            self._psp.events_written.wait(_CHECK_EVERY_SECONDS)

    def _deliver(self, event: DueEvent, now: datetime) -> bool:
        answer = self._post(event.body)
        if answer.startswith("2"):
            self._psp.remove_event(event)
            return True
        if event.age >= GIVE_UP_AFTER:
            _log.error("webhook_given_up", event_id=event.id, tries=event.tries, answer=answer)
            self._psp.remove_event(event)
            return False
        wait = RETRY_AFTER[event.tries - 1] if event.tries <= len(RETRY_AFTER) else RETRY_EVERY
        _log.warning("webhook_not_taken", event_id=event.id, tries=event.tries, answer=answer)
        self._psp.postpone_event(event, now + wait)
        return False

    def _post(self, body: bytes) -> str:
        """Send a webhook. Return the status of the response, or the name of the error."""
        connect = HTTPSConnection if self._url.scheme == "https" else HTTPConnection
        connection = connect(self._url.netloc, timeout=_TIMEOUT_SECONDS)
        headers = {
            "Content-Type": "application/json",
            signatures.HEADER: signatures.sign(
                body, secret=self._psp.webhook_secret, now=self._psp.clock.now()
            ),
        }
        try:
            connection.request("POST", self._url.path, body, headers)
            return str(connection.getresponse().status)
        except (OSError, HTTPException) as error:
            return type(error).__name__
        finally:
            connection.close()
