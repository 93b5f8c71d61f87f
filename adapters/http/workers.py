"""Threads that answer requests: no more of them at a time than get on with it.

Each waits for what happens next, handles it to its end, and waits again (Leader/Followers, as in
"Pattern-Oriented Software Architecture", volume 2). Nothing is handed from thread to thread, and
nobody takes the interpreter from who has it at every statement of SQL: at 16 connections that
took half of the throughput (docs/benchmarks.md). Who is held up is relieved.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from typing_extensions import override

HELD_UP_SECONDS: Final = 0.02
"""How long something may take to be handled until another thread goes on with the next."""

_log = logging.getLogger(__name__)

Event = TypeVar("Event")


class Workers(Generic[Event]):
    """A number of threads, of which some are on duty: they wait for events and handle them.

    `next_event` waits a second at most, and may give None.
    """

    def __init__(
        self,
        next_event: Callable[[], Event | None],
        handle: Callable[[Event], object],
        *,
        count: int,
        on_duty: int,
    ) -> None:
        self._next_event = next_event
        self._handle = handle
        self._has_ended = False
        self._each = [_Worker(self, f"worker-{number}") for number in range(count)]
        self._changing_duty = threading.Lock()
        for each in self._each[:on_duty]:
            each.is_on_duty.set()

    def start(self) -> None:
        """Have those on duty begin."""
        for each in self._each:
            each.start()

    def relieve_who_is_held_up(self) -> None:
        """Put another on duty for each that has been at the same thing for too long."""
        began_before = time.monotonic() - HELD_UP_SECONDS
        for each in self._each:
            busy_since = each.busy_since
            if busy_since is not None and busy_since < began_before:
                self.relieve(each)

    def relieve(self, worker: _Worker) -> None:
        """Put another on duty for a worker, if it is on duty and another is free."""
        with self._changing_duty:
            if not worker.is_on_duty.is_set():
                return
            for other in self._each:
                if other.busy_since is None and not other.is_on_duty.is_set():
                    worker.is_on_duty.clear()
                    other.is_on_duty.set()
                    return

    def stop(self, *, within_seconds: float) -> None:
        """Have each end with what it is at; those that take longer are left to themselves."""
        self._has_ended = True
        for each in self._each:
            each.is_on_duty.set()
        until = time.monotonic() + within_seconds
        for each in self._each:
            while each.busy_since is not None and time.monotonic() < until:
                each.join(HELD_UP_SECONDS)

    def work(self, worker: _Worker) -> None:
        """Handle events whenever a worker, whose thread this is, is on duty."""
        while worker.is_on_duty.wait() and not self._has_ended:
            try:
                event = self._next_event()
                if event is not None:
                    worker.busy_since = time.monotonic()
                    self._handle(event)
            except BaseException:  # noqa: BLE001 - whatever it is, the thread is needed
                _log.exception("Fault in a worker")
            finally:
                worker.busy_since = None


def step_aside() -> None:
    """Have another thread go on if this is a worker's; it is about to wait, for a PSP say."""
    thread = threading.current_thread()
    if isinstance(thread, _Worker):
        thread.workers.relieve(thread)


class _Worker(threading.Thread):
    def __init__(self, workers: Workers[Event], name: str) -> None:
        super().__init__(name=name, daemon=True)
        self.workers = workers
        self.is_on_duty = threading.Event()
        self.busy_since: float | None = None

    @override
    def run(self) -> None:
        self.workers.work(self)
