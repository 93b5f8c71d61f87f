"""The storage in which a process counts requests for its own rate limits."""

from __future__ import annotations

import time
from threading import Lock
from typing import Final

from limits.storage import Storage
from typing_extensions import override

_FORGET_FROM: Final = 1_000


class CountsInMemory(Storage):
    """A custom storage for the package `limits`, for fixed windows. Threads may share it.

    The package's own storage in memory starts a thread every 10 milliseconds to delete windows that
    have ended. Requests wait for that thread. With 64 connections, they spend a fifth of their time
    waiting for it.

    This storage does not start threads. When the number of windows has doubled since the last
    deletion, and is at least 1,000, it deletes the windows that have ended.
    """

    STORAGE_SCHEME: list[str] | None = None

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._windows: dict[str, tuple[float, int]] = {}
        self._forget_at = _FORGET_FROM

    def __len__(self) -> int:
        """Return the number of windows that are stored."""
        return len(self._windows)

    @property
    @override
    def base_exceptions(self) -> tuple[type[Exception], ...]:
        return ()

    @override
    def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        now = time.time()
        with self._lock:
            ends_at, count = self._windows.get(key, (now, 0))
            if ends_at <= now:
                self._forget(now)
                ends_at, count = now + expiry, 0
            self._windows[key] = ends_at, count + amount
        return count + amount

    def _forget(self, now: float) -> None:
        if len(self._windows) < self._forget_at:
            return
        self._windows = {key: kept for key, kept in self._windows.items() if kept[0] > now}
        self._forget_at = max(_FORGET_FROM, 2 * len(self._windows))

    @override
    def get(self, key: str) -> int:
        ends_at, count = self._windows.get(key, (0.0, 0))
        return count if ends_at > time.time() else 0

    @override
    def get_expiry(self, key: str) -> float:
        return self._windows.get(key, (time.time(), 0))[0]

    @override
    def check(self) -> bool:
        return True

    @override
    def reset(self) -> None:
        self._windows.clear()

    @override
    def clear(self, key: str) -> None:
        self._windows.pop(key, None)
