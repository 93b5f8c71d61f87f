"""The time and random identifiers, which the domain takes from outside."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol


class Clock(Protocol):
    """The time."""

    def now(self) -> datetime:
        """Return the current time, with the time zone UTC."""
        ...

    def is_steady(self) -> bool:
        """Return whether the clock has gone on evenly for 10 minutes, as this process has seen.

        What cannot be undone waits for that: a clock that is ahead for some minutes, as after the
        start of a machine, must not end it.
        """
        return True


class Ids(Protocol):
    """Random identifiers and secrets."""

    def uuid(self) -> str:
        """Return a new random UUID in 36-character form, lower case (RFC 9562, version 4)."""
        ...

    def secret(self) -> str:
        """Return new URL-safe random text of at least 128 bits."""
        ...
