"""Circuit breakers, one for each merchant account.

If a PSP hangs, the breaker of the account stops calls to the PSP for a while.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from threading import Lock
from typing import Final

import structlog

from domain.identifiers import PspAccount
from domain.psps.payment_provider import ProviderUnavailable

HANGS_AFTER_SECONDS: Final = 4.0
"""A call that fails after this time counts as a time-out; a faster failure does not."""

HANGS_BEFORE_PAUSE: Final = 3
PAUSE_SECONDS: Final = 10.0
MAX_PAUSE: Final = timedelta(minutes=1)
"""The longest pause that a PSP can request. A wrong header must not stop all work for a day."""

log = structlog.get_logger()


class CircuitBreaker:
    """Stops calls for one merchant account for a while.

    The breaker opens for 10 seconds after three consecutive time-outs. If the PSP sends
    Retry-After, the breaker opens for the time in that header, but at most for a minute. If both
    happen, the longer time applies.

    After the time has passed, one trial call is allowed. If the trial times out, the breaker opens
    for another 10 seconds. If it does not, the breaker closes.
    """

    def __init__(self, account: PspAccount, now: Callable[[], float] = time.monotonic) -> None:
        self._account = account
        self._now = now
        self._lock = Lock()
        self._hangs = 0
        self._is_closed = True
        self._open_until = now()

    @contextmanager
    def around_call(self) -> Iterator[None]:
        """Record the result of the call in a `with` block.

        Raises ProviderUnavailable at once while the breaker is open.
        """
        begun_at = self._now()
        with self._lock:
            if begun_at < self._open_until:
                raise ProviderUnavailable("the circuit breaker is open")
            if not self._is_closed:
                # This is the trial call; other calls are stopped meanwhile.
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
        """Return how many calls may run at once, which is normally `most`.

        The number is 0 while the breaker is open, and 1 when a trial call is allowed.
        """
        with self._lock:
            if self._now() < self._open_until:
                return 0
            return most if self._is_closed else 1

    def _note(self, has_hung: bool, pause_seconds: float) -> None:
        with self._lock:
            self._hangs = self._hangs + 1 if has_hung else 0
            if self._hangs >= HANGS_BEFORE_PAUSE or (has_hung and not self._is_closed):
                pause_seconds = max(pause_seconds, PAUSE_SECONDS)
            self._is_closed = pause_seconds == 0
            self._open_until = self._now() + pause_seconds
        if pause_seconds:
            log.warning("psp_paused", **self._account._asdict(), seconds=pause_seconds)


class CircuitBreakers:
    """The circuit breakers of this process. Each is created at the first call to its account."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._lock = Lock()
        self._breakers: dict[PspAccount, CircuitBreaker] = {}

    def of(self, account: PspAccount) -> CircuitBreaker:
        """Return the breaker of a merchant account."""
        with self._lock:
            return self._breakers.setdefault(account, CircuitBreaker(account, self._now))

    def capacities(self, most: int) -> dict[PspAccount, int]:
        """Return `CircuitBreaker.capacity` for each merchant account that has a breaker."""
        with self._lock:
            breakers = dict(self._breakers)
        return {account: breaker.capacity(most) for account, breaker in breakers.items()}
