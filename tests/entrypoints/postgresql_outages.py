"""Outages of a PostgreSQL server: it shuts down, crashes, or hangs."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from tests.postgresql import PostgresqlServer
from tests.waiting import wait_until


@contextmanager
def stopped(server: PostgresqlServer) -> Iterator[None]:
    """Shut the server down, and start it again after the block."""
    server.stop(signal.SIGINT)
    try:
        yield
    finally:
        server.start()


@contextmanager
def crashed(server: PostgresqlServer) -> Iterator[None]:
    """Kill all processes of the server, and start it again after the block."""
    with _paused(server) as processes:
        for process in processes:
            _signal(process, signal.SIGKILL)
        server.stop(signal.SIGKILL)
        wait_until(lambda: {_state_and_parent(process)[0] for process in processes} <= {"", "Z"})
    try:
        yield
    finally:
        server.start()


@contextmanager
def hanging(server: PostgresqlServer) -> Iterator[None]:
    """Pause the server. It keeps and accepts connections but does not respond."""
    with _paused(server):
        yield


@contextmanager
def _paused(server: PostgresqlServer) -> Iterator[Sequence[Path]]:
    """Pause all processes of the server, and yield their folders under /proc."""
    assert server.process is not None
    parent = Path("/proc", str(server.process.pid))
    paused = [parent]
    try:
        _signal(parent, signal.SIGSTOP)
        # A stopped parent does not fork further processes.
        wait_until(lambda: _state_and_parent(parent)[0] == "T")
        for process in Path("/proc").glob("[0-9]*"):
            if _state_and_parent(process)[1] == parent.name:
                _signal(process, signal.SIGSTOP)
                paused.append(process)
        yield paused
    finally:
        for process in reversed(paused):
            _signal(process, signal.SIGCONT)


def _signal(process: Path, number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.kill(int(process.name), number)


def _state_and_parent(process: Path) -> tuple[str, str]:
    try:
        # The name of the process comes first. It is in parentheses, and may contain anything.
        state, parent, *_ = (process / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return "", ""
    return state, parent
