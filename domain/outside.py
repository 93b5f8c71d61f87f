"""The ports for the current time, random identifiers, and traces."""

from __future__ import annotations

from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from typing import Final, NewType, Protocol

_FIRST: Final = datetime.min.replace(tzinfo=UTC)
_LAST: Final = datetime.max.replace(tzinfo=UTC)


class Clock(Protocol):
    """The port that returns the current time."""

    def now(self) -> datetime:
        """Return the current time, with the time zone UTC."""
        ...

    def is_steady(self) -> bool:
        """Return whether the clock has advanced evenly for 10 minutes in this process.

        Irreversible work waits for a steady clock. Otherwise, a clock that is ahead for some
        minutes, for example after the start of a machine, could cause such work too early.
        """
        return True


def time_before(now: datetime, ago: timedelta) -> datetime:
    """Return `now` minus `ago`, or the earliest time that can be stored if that is later."""
    return now - min(ago, now - _FIRST)


def time_after(now: datetime, wait: timedelta) -> datetime:
    """Return `now` plus `wait`, or the latest time that can be stored if that is earlier."""
    return now + min(wait, _LAST - now)


class Ids(Protocol):
    """The port that returns random identifiers and secrets."""

    def uuid(self) -> str:
        """Return a new random UUID in 36-character form, lower case (RFC 9562, version 4)."""
        ...

    def secret(self) -> str:
        """Return new URL-safe random text of at least 128 bits."""
        ...


Trace = NewType("Trace", str)
"""The trace of a client's request through several systems. Only adapters know its format."""


class Traces(Protocol):
    """The port that knows the trace to which the current work of a thread belongs."""

    def current(self) -> Trace | None:
        """Return the trace of this thread's current work, or None."""
        ...

    def following(self, trace: Trace | None) -> AbstractContextManager[None]:
        """Return a context manager whose `with` block belongs to a trace.

        If the current work already belongs to a trace, it keeps that trace.
        """
        ...
