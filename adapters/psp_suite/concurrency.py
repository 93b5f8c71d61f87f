"""Run work in several threads at once."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier
from typing import TypeVar

Returned = TypeVar("Returned")


def at_once(threads: int, work: Callable[[int], Returned]) -> list[Returned]:
    """Run `work(0)`, `work(1)` … in threads that start together, and return the results in order.

    If any call raises an exception, raise that exception.
    """
    barrier = Barrier(threads)

    def start(number: int) -> Returned:
        barrier.wait(timeout=60)
        return work(number)

    with ThreadPoolExecutor(threads) as pool:
        return list(pool.map(start, range(threads)))
