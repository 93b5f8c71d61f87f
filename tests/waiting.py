"""Waits for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

LIMIT_SECONDS: Final = 180
"""The longest time that a test waits. Even on a slow machine, only a wait in vain is this long."""

Seen = TypeVar("Seen")


def wait_until(look: Callable[[], Seen | None], *, seconds: float = LIMIT_SECONDS) -> Seen:
    """Call `look` until it returns something true, and return that. Fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
