"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def wait_until(look: Callable[[], Seen | None], *, seconds: float = 40) -> Seen:
    """Call `look` until it returns something true, and return that. Fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.01)
