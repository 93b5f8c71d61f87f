"""The machine's clock."""

from __future__ import annotations

from datetime import UTC, datetime

from typing_extensions import override

from domain.ports import Clock


class SystemClock(Clock):
    """Tells the machine's time."""

    @override
    def now(self) -> datetime:
        return datetime.now(UTC)
