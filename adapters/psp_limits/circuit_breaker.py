"""A circuit breaker for each merchant account: a PSP that hangs, or asks for a pause, gets one."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import Final

import structlog

from domain.identifiers import PspAccount
from domain.ports import ProviderUnavailable

HANGS_AFTER_SECONDS: Final = 4.0
"""A call that ended without a response after so long ran out of time; a quick failure did not."""

HANGS_BEFORE_PAUSE: Final = 3
PAUSE_SECONDS: Final = 10.0
MAX_PAUSE: Final = timedelta(minutes=1)
"""The longest pause that a PSP can ask for: a mistaken header must not end all work for a day."""

log = structlog.get_logger()


class CircuitBreaker:
    """Spares one merchant account further calls for a while.

    It opens for 10 seconds when three calls in a row ran out of time, and for as long as the PSP
    asks, up to a minute, when it answers that there were too many. Then one call tries again, and
    the breaker closes once a call gets a response in time.
    """

    def __init__(self, account: PspAccount, now: Callable[[], float] = time.monotonic) -> None:
        """Take the account, and a clock in seconds."""
        self._account = account
        self._now = now
        self._lock = Lock()
        self._hangs = 0
        self._is_closed = True
        self._open_until = now()

    @contextmanager
    def around_call(self) -> Iterator[None]:
        """Watch over a call. Raises ProviderUnavailable at once while the breaker is open."""
        begun_at = self._now()
        with self._lock:
            if begun_at < self._open_until:
                raise ProviderUnavailable("the PSP is left alone for a while")
            if not self._is_closed:
                # This call alone finds out whether the PSP is back.
                self._open_until = begun_at + PAUSE_SECONDS
        pause_seconds, has_hung = 0.0, False
        try:
            yield
        except ProviderUnavailable as failure:
            has_hung = self._now() - begun_at >= HANGS_AFTER_SECONDS
            if failure.retry_after is not None:
                pause_seconds = min(failure.retry_after, MAX_PAUSE).total_seconds()
            raise
        finally:
            self._note(has_hung, pause_seconds)

    def capacity(self, most: int) -> int:
        """Give how many calls may be under way: none while open, one to try again, else `most`."""
        with self._lock:
            if self._now() < self._open_until:
                return 0
            return most if self._is_closed else 1

    def _note(self, has_hung: bool, pause_seconds: float) -> None:
        with self._lock:
            self._hangs = self._hangs + 1 if has_hung else 0
            if self._hangs >= HANGS_BEFORE_PAUSE:
                pause_seconds = PAUSE_SECONDS
            self._is_closed = pause_seconds == 0
            self._open_until = self._now() + pause_seconds
        if pause_seconds:
            log.warning("psp_paused", **self._account._asdict(), seconds=pause_seconds)


class CircuitBreakers:
    """The circuit breakers of this process, each made when its merchant account is first called."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = Lock()
        self._breakers: dict[PspAccount, CircuitBreaker] = {}

    def of(self, account: PspAccount) -> CircuitBreaker:
        """Give the breaker of a merchant account."""
        with self._lock:
            return self._breakers.setdefault(account, CircuitBreaker(account, self._now))

    def capacities(self, most: int) -> dict[PspAccount, int]:
        """Give how many calls each merchant account may have under way, `most` at the most."""
        with self._lock:
            breakers = dict(self._breakers)
        return {account: breaker.capacity(most) for account, breaker in breakers.items()}
