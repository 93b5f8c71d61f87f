"""Work that may hang, in a thread that keeps nobody waiting."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from threading import Thread
from typing import TypeVar

Result = TypeVar("Result")


def begin(work: Callable[[], Result]) -> Future[Result]:
    """Begin work in a daemon thread, which does not keep the process from ending."""
    begun: Future[Result] = Future()

    def run() -> None:
        try:
            begun.set_result(work())
        except BaseException as error:  # noqa: BLE001 - who waits for the result gets it
            begun.set_exception(error)

    Thread(target=run, daemon=True).start()
    return begun
