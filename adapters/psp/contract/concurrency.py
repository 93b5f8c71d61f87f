"""Running the same work in several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

Result = TypeVar("Result")


def at_once(threads: int, work: Callable[[int], Result]) -> list[Result]:
    """Give what `work` gives for 0 up to `threads`, each in a thread that starts with the others.

    Raises what any of them raises.
    """
    barrier = Barrier(threads)

    def start(number: int) -> Result:
        barrier.wait(timeout=10)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(start, range(threads)))
