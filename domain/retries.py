"""The times of retries: backoff, leases, and protection against clocks that were ahead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, Self

from domain.identifiers import PspAccount

MIN_BACKOFF: Final = timedelta(seconds=30)
MAX_BACKOFF: Final = timedelta(hours=1)
LEASE: Final = timedelta(minutes=1)
"""How long a process leases a piece of work. After that, other processes may lease the work."""
CLOCKS_DIFFER_BY: Final = timedelta(minutes=1)
"""How much the clocks of two machines may differ."""
ALARM_AFTER: Final = timedelta(hours=24)
"""After this time without a response from a PSP, a person must look into the problem."""


class Waiting(NamedTuple):
    """How many pieces of work wait, and since when the oldest of them has waited.

    `since` is None if no work waits, or if the time comes from a clock that was ahead.
    """

    items: int = 0
    since: datetime | None = None


# This class and its subclass for sessions have no slots, so that a record can extend another class
# too.
@dataclass(frozen=True, kw_only=True)
class WorkAtPsp:
    """A record for which workers and requests call a PSP.

    `due_at` is when a worker may lease the record, or the end of its lease. If it is None, no work
    is scheduled. `unanswered_since` is set while the PSP does not respond.
    """

    due_at: datetime | None
    unanswered_since: datetime | None = None

    def psp_unavailable(self, now: datetime) -> Self:
        """Return the new state of this record after the PSP did not respond.

        The waits between retries grow.
        """
        since = min(self.unanswered_since or now, now)
        return replace(self, unanswered_since=since, due_at=next_retry(since, now))

    def postponed(self, due_at: datetime | None) -> Self:
        """Return a copy of this record that is due at `due_at`.

        Call this after the PSP responded, or if the PSP does not have to be asked.
        """
        return replace(self, due_at=due_at, unanswered_since=None)


class WorkAtPsps(Protocol):
    """Repository of one kind of record for which PSPs are called. `take_due` leases a record."""

    def count_due(self, now: datetime) -> Waiting:
        """Return how many records `take_due` could lease now, and since when the oldest is due."""
        ...

    def unanswered(self) -> Mapping[PspAccount, Waiting]:
        """Return how many records wait for a PSP that does not respond.

        The result has one entry for each merchant account for which records wait.
        """
        ...

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Return whether `take_due` would find a record. Changes nothing."""
        ...


def next_retry(unanswered_since: datetime, now: datetime) -> datetime:
    """Return the time of the next retry, during an outage that began at `unanswered_since`.

    Each wait is as long as the outage has lasted, but at least 30 seconds and at most an hour.
    """
    return now + min(max(now - unanswered_since, MIN_BACKOFF), MAX_BACKOFF)


def latest_due(now: datetime, *, longest_wait: timedelta) -> datetime:
    """Return the latest possible due time of work that waits at most `longest_wait`.

    A later due time must come from a clock that was ahead. Work with such a time is due now.
    """
    return now + longest_wait + CLOCKS_DIFFER_BY


def is_alarming(unanswered_since: datetime | None, now: datetime) -> bool:
    """Return whether the PSP has not responded for 24 hours (ALARM_AFTER)."""
    return unanswered_since is not None and now - unanswered_since >= ALARM_AFTER
