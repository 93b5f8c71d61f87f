"""A clock that stands still until a test moves it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from typing_extensions import override

from domain.outside import Clock

START: Final = datetime(2026, 11, 20, 12, 0, tzinfo=UTC)


class SettableClock(Clock):
    """A clock for tests."""

    def __init__(self, now: datetime = START) -> None:
        self._now = now

    @override
    def now(self) -> datetime:
        return self._now

    def advance(self, by: timedelta) -> None:
        """Move the clock forward, or back if `by` is negative."""
        self._now += by
