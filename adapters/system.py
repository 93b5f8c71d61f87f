"""The system clock and the random source of the operating system."""

from __future__ import annotations

import os
import pwd
import secrets
import time
import uuid
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Final

from typing_extensions import override

from domain.audit.entry import Actor
from domain.outside import Clock, Ids
from domain.retries import CLOCKS_DIFFER_BY

STEADY_AFTER: Final = timedelta(minutes=10)


class SystemClock(Clock):
    """The operating system's clock.

    To find jumps, it is compared with `elapsed`, which returns seconds from a monotonic clock.
    """

    def __init__(
        self,
        elapsed: Callable[[], float] = time.monotonic,
        *,
        steady_after: timedelta = STEADY_AFTER,
    ) -> None:
        """Start to compare the system clock with `elapsed`.

        The system clock counts as steady when it has not jumped for `steady_after`.
        """
        self._elapsed = elapsed
        self._steady_after = steady_after
        self._even_since = datetime.now(UTC), elapsed()

    @override
    def now(self) -> datetime:
        now, elapsed = datetime.now(UTC), self._elapsed()
        since, began = self._even_since
        if abs(now - since - timedelta(seconds=elapsed - began)) > CLOCKS_DIFFER_BY:
            self._even_since = now, elapsed
        return now

    @override
    def is_steady(self) -> bool:
        return self.now() - self._even_since[0] >= self._steady_after


class RandomIds(Ids):
    """Random identifiers and secrets from the operating system, which nobody can guess."""

    @override
    def uuid(self) -> str:
        return str(uuid.uuid4())

    @override
    def secret(self) -> str:
        return secrets.token_urlsafe(32)


def operating_system_user() -> Actor:
    """Return the user of the operating system who runs this process.

    Environment variables are not used.
    """
    uid = os.getuid()
    try:
        return Actor(f"user:{pwd.getpwuid(uid).pw_name}")
    except KeyError:
        # In a container, the user may have no name.
        return Actor(f"user:{uid}")
