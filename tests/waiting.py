"""Waiting for what another thread or process does."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

Seen = TypeVar("Seen")


def wait_until(look: Callable[[], Seen | None], *, seconds: float = 20) -> Seen:
    """Look until there is something to see, and give it; fail when it takes too long."""
    give_up_at = time.monotonic() + seconds
    while True:
        seen = look()
        if seen:
            return seen
        assert time.monotonic() < give_up_at, "waited in vain"
        time.sleep(0.01)
