"""The current time, random identifiers and traces, which the domain takes from outside."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Final, NewType, Protocol

_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Return the current time, with the time zone UTC."""
        ...

    def is_steady(self) -> bool:
        """Return whether the clock has advanced evenly for 10 minutes in this process.

        Irreversible work waits for that, so that a clock that is ahead for some minutes, as after
        the start of a machine, cannot cause it.
        """
        return True


def time_before(now: datetime, ago: timedelta) -> datetime:
    """Return the time `ago` before `now`, or the first time that can be stored."""
    return now - min(ago, now - _FIRST)


def time_after(now: datetime, wait: timedelta) -> datetime:
    """Return the time `wait` after `now`, or the last time that can be stored."""
    return now + min(wait, _LAST - now)


class Ids(Protocol):
    """Random identifiers and secrets."""

    def uuid(self) -> str:
        """Return a new random UUID in 36-character form, lower case (RFC 9562, version 4)."""
        ...

    def secret(self) -> str:
        """Return new URL-safe random text of at least 128 bits."""
        ...


Trace = NewType("Trace", str)
"""The trace of a client's request through several systems, as the adapters write it."""


class Traces(Protocol):
    """The trace to which the present work of this thread belongs."""

    def current(self) -> Trace | None:
        """Return the trace, or None if the work belongs to no trace."""
        ...

    def following(self, trace: Trace | None) -> AbstractContextManager[None]:
        """Let the work in a `with` statement belong to a trace, unless it already has another."""
        ...
