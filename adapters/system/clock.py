"""The system clock."""

from __future__ import annotations

from datetime import UTC, datetime

from typing_extensions import override

from domain.ports import Clock


class SystemClock(Clock):
    """The clock of the operating system."""

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)
