"""Several processes at the same work, kept running by a parent that does none of it.

They are forked, so that they share what is open already: the listening socket above all. What must
not be shared (connections, threads, pools) is opened after the fork, by each for itself.
"""

from __future__ import annotations

import math
import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from types import FrameType
from typing import Final, NoReturn, Protocol

import structlog

from adapters.http.server import DRAIN_SECONDS

FINISH_SECONDS: Final = DRAIN_SECONDS + 25.0
"""How long a process may take to finish: the drain, and then what its threads have begun.

Less than the 60 seconds after which operators are told to lose patience with the parent.
"""
SETTLED_SECONDS: Final = 10.0
"""Whoever ends sooner than this has ended at its start, and is likely to do so again."""
FIRST_PAUSE_SECONDS: Final = 1.0
LONGEST_PAUSE_SECONDS: Final = 30.0

_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT, signal.SIGCHLD})

log = structlog.get_logger()


class Work(Protocol):
    """What a process does."""

    def run(self) -> None:
        """Work until told to stop, and finish what was begun."""
        ...

    def stop(self) -> None:
        """Have `run` finish. It is called from signal handlers, and may be called twice."""
        ...


@dataclass
class _Place:
    """A place that one process after the other takes. Without `pid` nobody has it."""

    pid: int | None = None
    started_at: float = 0.0
    pause_seconds: float = 0.0
    closed_until: float = 0.0


class Processes:
    """Keeps a number of processes at work, each a fork of this one.

    The parent must have no thread and no connection open; it serves nothing. It takes over SIGTERM,
    SIGINT and SIGCHLD for the rest of its life. However it ends, the others then finish as well.
    """

    def __init__(self, count: int, set_up: Callable[[], Work]) -> None:
        """Take what each process calls first, to open what is its own."""
        self._set_up = set_up
        self._places = [_Place() for _ in range(count)]
        self._is_stopping = False
        # Nothing is ever written here. The others read the end of it once the parent, which alone
        # could write, is no more.
        self._life_read, self._life_write = os.pipe()
        # Each signal writes here, so that none is missed between a look at things and a wait.
        self._wakeup_read, self._wakeup_write = os.pipe()
        os.set_blocking(self._wakeup_read, False)
        os.set_blocking(self._wakeup_write, False)

    def run(self) -> None:
        """Start the processes, and start again what ends, until SIGTERM or SIGINT."""
        signal.set_wakeup_fd(self._wakeup_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, self._on_signal)
        signal.signal(signal.SIGINT, self._on_signal)
        signal.signal(signal.SIGCHLD, _notice)
        # Ctrl-C reaches every process, and the parent no later than those that obey it: it knows of
        # the signal before it finds that they have ended, and starts none of them again.
        while not self._is_stopping:
            now = time.monotonic()
            for place in self._places:
                if place.pid is None and place.closed_until <= now:
                    self._start(place)
            self._wait(until=min(self._openings(), default=math.inf))
            self._take_leave()

    def finish(self) -> int:
        """Have every process finish what it has begun, and kill those that take too long.

        Gives how many did not finish in good order.
        """
        for pid in self._pids():
            os.kill(pid, signal.SIGTERM)
        give_up_at = time.monotonic() + FINISH_SECONDS
        failed = 0
        while pids := self._pids():
            if time.monotonic() >= give_up_at:
                for pid in pids:
                    os.kill(pid, signal.SIGKILL)
                    log.error("process_killed", pid=pid)
                give_up_at = math.inf
            self._wait(until=give_up_at)
            failed += self._take_leave()
        return failed

    def _on_signal(self, _: int, __: FrameType | None) -> None:
        self._is_stopping = True

    def _pids(self) -> list[int]:
        return [each.pid for each in self._places if each.pid is not None]

    def _openings(self) -> list[float]:
        return [each.closed_until for each in self._places if each.pid is None]

    def _wait(self, *, until: float) -> None:
        """Wait for the next signal, but not beyond that time."""
        seconds = None if until == math.inf else max(0.0, until - time.monotonic())
        select.select([self._wakeup_read], [], [], seconds)
        with suppress(BlockingIOError):
            os.read(self._wakeup_read, 4096)

    def _start(self, place: _Place) -> None:
        place.started_at = time.monotonic()
        # A signal that comes before the process knows what to do with it waits until it does.
        signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)
        try:
            place.pid = os.fork()
            if place.pid == 0:
                self._work()
        except OSError as error:
            _close_for_a_while(place)
            log.error("process_not_started", exc_info=error)
        else:
            log.info("process_started", pid=place.pid)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)

    def _take_leave(self) -> int:
        """Free the places of the processes that have ended; give how many of them had failed."""
        failed = 0
        for place in self._places:
            if place.pid is None:
                continue
            pid, status = os.waitpid(place.pid, os.WNOHANG)
            if pid == 0:
                continue
            place.pid = None
            _close_for_a_while(place)
            exit_code = os.waitstatus_to_exitcode(status)
            failed += exit_code != 0
            _report_end(pid, exit_code)
        return failed

    def _work(self) -> NoReturn:
        """Do the work of a forked process, and end the process: nothing of the parent may go on."""
        exit_code = 1
        try:
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for descriptor in (self._life_write, self._wakeup_read, self._wakeup_write):
                os.close(descriptor)
            work = self._set_up()

            def on_signal(_: int, __: FrameType | None) -> None:
                work.stop()

            signal.signal(signal.SIGTERM, on_signal)
            signal.signal(signal.SIGINT, on_signal)
            threading.Thread(target=self._outlive_parent, name="parent", daemon=True).start()
            signal.pthread_sigmask(signal.SIG_UNBLOCK, _SIGNALS)
            work.run()
            exit_code = 0
        except Exception as fault:
            log.error("process_fault", exc_info=fault)
        finally:
            os._exit(exit_code)

    def _outlive_parent(self) -> None:
        os.read(self._life_read, 1)
        # The same way as when an operator says so.
        os.kill(os.getpid(), signal.SIGTERM)


def pause_after(lived_seconds: float, *, last_pause_seconds: float) -> float:
    """Give how long to wait before a process is started again: not at all, if it lived a while."""
    if lived_seconds >= SETTLED_SECONDS:
        return 0.0
    return min(max(FIRST_PAUSE_SECONDS, 2 * last_pause_seconds), LONGEST_PAUSE_SECONDS)


def _close_for_a_while(place: _Place) -> None:
    now = time.monotonic()
    place.pause_seconds = pause_after(
        now - place.started_at, last_pause_seconds=place.pause_seconds
    )
    place.closed_until = now + place.pause_seconds


def _report_end(pid: int, exit_code: int) -> None:
    if exit_code == 0:
        log.info("process_finished", pid=pid)
    elif exit_code > 0:
        log.error("process_died", pid=pid, status=exit_code)
    else:
        log.error("process_died", pid=pid, signal=-exit_code)


def _notice(_: int, __: FrameType | None) -> None:
    """Do nothing; the wait has ended, which is all there is to it."""
