"""When work is tried again: backoff, leases, and protection against clocks that were ahead."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple, Protocol, Self

from domain.identifiers import PspAccount

MIN_BACKOFF: Final = timedelta(seconds=30)
MAX_BACKOFF: Final = timedelta(hours=1)
LEASE: Final = timedelta(minutes=1)
"""How long work belongs to the process that leased it. After that, others may lease it."""
CLOCKS_DIFFER_BY: Final = timedelta(minutes=1)
"""How far the clocks of two machines may differ."""
ALARM_AFTER: Final = timedelta(hours=24)
"""A PSP that has not responded for this long needs a person's attention."""


class Waiting(NamedTuple):
    """How many pieces of work wait, and since when the oldest has waited.

    `since` is None if no work waits, or if a clock that was ahead set its time.
    """

    items: int = 0
    since: datetime | None = None


# Without slots, like its subclass for sessions, so that a record may extend another class too.
@dataclass(frozen=True, kw_only=True)
class WorkAtPsp:
    """A record about which workers and others call a PSP.

    `due_at` is when a worker next leases it, or the end of its lease; None means that it waits for
    an event. `unanswered_since` is set while the PSP does not respond.
    """

    due_at: datetime | None
    unanswered_since: datetime | None = None

    def psp_unavailable(self, now: datetime) -> Self:
        """Note that the PSP did not respond. It is called again with growing waits."""
        since = min(self.unanswered_since or now, now)
        return replace(self, unanswered_since=since, due_at=next_retry(since, now))

    def postponed(self, due_at: datetime | None) -> Self:
        """Set the next due time, after a response of the PSP or if no response is needed."""
        return replace(self, due_at=due_at, unanswered_since=None)


class WorkAtPsps(Protocol):
    """Records of one kind about which PSPs are called. `take_due` leases one of them."""

    def count_due(self, now: datetime) -> Waiting:
        """Count the records that `take_due` could lease now, one after the other."""
        ...

    def unanswered(self) -> Mapping[PspAccount, Waiting]:
        """Count the records whose PSP has not responded, and since when, by merchant account."""
        ...

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Return whether `take_due` would find a record; changes nothing."""
        ...


def next_retry(unanswered_since: datetime, now: datetime) -> datetime:
    """Return the time of the next try.

    Each wait is as long as the outage so far, but at least 30 seconds and at most an hour.
    """
    return now + min(max(now - unanswered_since, MIN_BACKOFF), MAX_BACKOFF)


def latest_due(now: datetime, *, longest_wait: timedelta) -> datetime:
    """Return the latest possible due time of work that waits at most this long.

    Work that is due later is due now, because a clock that was ahead set its time.
    """
    return now + longest_wait + CLOCKS_DIFFER_BY


def is_alarming(unanswered_since: datetime | None, now: datetime) -> bool:
    """Return whether the PSP has not responded for 24 hours."""
    return unanswered_since is not None and now - unanswered_since >= ALARM_AFTER
