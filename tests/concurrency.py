"""Work in another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adapters.psp_suite.concurrency import at_once

Returned = TypeVar("Returned")


def elsewhere(work: Callable[[], Returned]) -> Returned:
    """Run `work` in another thread. Return what it returns, or raise what it raises."""
    return at_once(1, lambda _: work())[0]
