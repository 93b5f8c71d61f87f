"""Running work in a thread of its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from adapters.psp.contract.concurrency import at_once

Result = TypeVar("Result")


def elsewhere(work: Callable[[], Result]) -> Result:
    """Give what `work` gives in a thread of its own."""
    return at_once(1, lambda _: work())[0]
