"""Programs that the processes of a test run share.

They start when they are first needed, and end with the run.
pytest's main process runs them. The workers of pytest-xdist ask that process.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from enum import StrEnum
from multiprocessing.managers import BaseManager
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

_ADDRESS: Final = "TEST_RUN"
"""The environment variable with the address at which other processes ask the main process."""
_KEY: Final = b"tests"


class Shared(StrEnum):
    """A program or folder that a run has once, if a test needs it."""

    INITIALIZED = "the path of a folder to begin a PostgreSQL server with"
    POSTGRESQL = "the address of a PostgreSQL server"


Start: TypeAlias = Callable[[], AbstractContextManager[str]]
"""Starts a shared program for the time of a `with` block, and yields its address or path."""


class NotInstalled(Exception):
    """A program that a test needs is missing or does not start. The text says what to install."""


class Run:
    """A run of the tests. Any process and thread may call it."""

    def __init__(self, starts: Mapping[Shared, Start]) -> None:
        self._starts = starts
        self._locks = {shared: threading.Lock() for shared in starts}
        self._running: dict[Shared, str] = {}
        self._ends = ExitStack()
        self._started: Counter[str] = Counter()

    def share(self, what: Shared) -> str:
        """Start the program unless it runs. Return its address or path. Raises NotInstalled."""
        with self._locks[what]:
            if what not in self._running:
                self._running[what] = self._ends.enter_context(self._starts[what]())
            return self._running[what]

    def note(self, program: str) -> None:
        """Record that a program was started."""
        self._started[program] += 1

    def started(self) -> str:
        """Return in one line which programs were started, and how often."""
        return ", ".join(
            program if times == 1 else f"{program} {times} times"
            for program, times in sorted(self._started.items())
        )

    def end(self) -> None:
        """End everything."""
        self._ends.close()


class _Lender(BaseManager):
    """Lets other processes call the `Run` of the main process."""

    if TYPE_CHECKING:  # as BaseManager makes it

        def run(self) -> Run: ...


_Lender.register("run")


@contextmanager
def running(starts: Mapping[Shared, Start]) -> Iterator[Run]:
    """Let this process and all that it starts share a run within the block."""
    run = Run(starts)
    _Lender.register("run", lambda: run)
    server = _Lender(authkey=_KEY).get_server()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ[_ADDRESS] = str(server.address)
    try:
        yield run
    finally:
        del os.environ[_ADDRESS]
        run.end()


def is_in_run() -> bool:
    """Return whether this process belongs to a run of the tests."""
    return _ADDRESS in os.environ


def share(what: Shared) -> str:
    """Return the address or path of a shared program or folder. Raises NotInstalled."""
    return _lent_run().share(what)


def note_start(program: str, origin: Path | str) -> None:
    """Record for the end of the run that a program was started, with its version and origin."""
    if is_in_run():
        if isinstance(origin, Path) and origin.is_relative_to(Path.cwd()):
            origin = origin.relative_to(Path.cwd())
        _lent_run().note(f"{program} ({origin})")


def _lent_run() -> Run:
    lender = _Lender(os.environ[_ADDRESS], authkey=_KEY)
    lender.connect()
    return lender.run()
