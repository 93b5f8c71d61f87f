"""How patient we are with a PSP that does not answer, and with a process that took work."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

RETRY_FIRST: Final = timedelta(seconds=30)
RETRY_AT_MOST: Final = timedelta(hours=1)
GIVEN_BACK_AFTER: Final = timedelta(minutes=1)
"""When work that a process took and did not finish is taken by another."""
ALARM_AFTER: Final = timedelta(hours=24)
"""Silence of this length is worth a person's attention."""


def next_try(unanswered_since: datetime, now: datetime) -> datetime:
    """Give when to try again: each wait is as long as the silence so far, within bounds."""
    return now + min(max(now - unanswered_since, RETRY_FIRST), RETRY_AT_MOST)


def is_alarming(unanswered_since: datetime | None, now: datetime) -> bool:
    """Tell whether the PSP has been silent for 24 hours."""
    return unanswered_since is not None and now - unanswered_since >= ALARM_AFTER
