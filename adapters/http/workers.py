"""Threads that answer requests: no more of them at a time than get on with it.

Each waits for what happens next, handles it to its end, and waits again (Leader/Followers, as in
"Pattern-Oriented Software Architecture", volume 2). Nothing is handed from thread to thread, and
nobody takes the interpreter from who has it at every statement of SQL: at 16 connections that
took half of the throughput (docs/benchmarks.md). Who is held up, by a PSP say, is relieved.
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
        self._each = [
            _Worker(next_event, handle, name=f"worker-{number}") for number in range(count)
        ]
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
            if each.is_on_duty.is_set() and each.is_busy_since(began_before):
                free = (other for other in self._each if other.is_free)
                relief = next(free, None)
                if relief is None:
                    return
                each.is_on_duty.clear()
                relief.is_on_duty.set()

    def stop(self, *, within_seconds: float) -> None:
        """Have each end with what it is at; those that take longer are left to themselves."""
        for each in self._each:
            each.is_to_end = True
            each.is_on_duty.set()
        until = time.monotonic() + within_seconds
        for each in self._each:
            while each.is_busy and time.monotonic() < until:
                each.join(HELD_UP_SECONDS)


class _Worker(threading.Thread, Generic[Event]):
    def __init__(
        self,
        next_event: Callable[[], Event | None],
        handle: Callable[[Event], object],
        *,
        name: str,
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._next_event = next_event
        self._handle = handle
        self.is_on_duty = threading.Event()
        self.is_to_end = False
        self._busy_since: float | None = None

    @property
    def is_busy(self) -> bool:
        return self._busy_since is not None

    @property
    def is_free(self) -> bool:
        return not self.is_busy and not self.is_on_duty.is_set()

    def is_busy_since(self, moment: float) -> bool:
        """Tell whether it began before a moment with what it is at."""
        busy_since = self._busy_since
        return busy_since is not None and busy_since < moment

    @override
    def run(self) -> None:
        while self.is_on_duty.wait() and not self.is_to_end:
            event = self._next_event()
            if event is not None:
                self._busy_since = time.monotonic()
                try:
                    self._handle(event)
                except Exception:  # noqa: BLE001  # whatever it is, the thread is needed
                    _log.exception("Fault in a worker")
                self._busy_since = None
