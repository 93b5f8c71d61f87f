"""Runs the jobs that are due in threads of a running process, and chores at intervals."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Generic

import structlog

from domain.errors import ServiceUnavailable
from domain.storage import RecordUnreadable
from domain.worker.jobs import Job, Kind, Result, Take, Target
from domain.worker.reconcile import Round
from entrypoints.worker.reports import EndpointLog, WorkLog, report

LOOK_EVERY_SECONDS: Final = 1.0
REPORT_AFTER: Final = 100
"""A busy runner logs a line after this many jobs."""

log = structlog.get_logger()


@dataclass
class Chore:
    """Something to do at intervals, once `may_begin` returns True. If it fails, it is done later.

    `do` returns True if there is more to do: then it is called again in a second, and jobs that are
    due come in between.
    """

    name: str
    every: timedelta
    do: Callable[[], bool | None]
    may_begin: Callable[[], bool] = lambda: True
    due_at: float = 0.0


class JobRunner(Generic[Target]):
    """Does what is due, several jobs at once, in threads of its own.

    One thread takes what is due and submits it to a pool. It looks every second, when it is woken,
    and when a thread of the pool becomes free. A target gets a part of the pool only, so that one
    that hangs does not stop the others.
    """

    def __init__(
        self,
        *,
        take: Mapping[Kind, Take[Target]],
        work: threading.Event,
        threads: int,
        threads_per_target: int,
        capacities: Callable[[int], Mapping[Target, int]] = lambda _: {},
        chores: Sequence[Chore] = (),
        work_log: WorkLog | None = None,
    ) -> None:
        """Take how jobs of each kind are taken, and `work`, the event that wakes the runner.

        `threads` is how many jobs it does at once, and `threads_per_target` how many of them for
        one target. `capacities` returns the targets that get less for now.
        """
        self.finds_work = False
        """Whether it has looked for all kinds of work without an error, the last time."""
        self._take = take
        self._work = work
        self._capacities = capacities
        self._chores = chores
        self._threads = threads
        self._threads_per_target = threads_per_target
        self._lock = threading.Lock()
        self._under_way: Counter[Target] = Counter()
        self._done = Round()
        self._note_attempt = EndpointLog()
        self._stopping = threading.Event()
        self._work_log = work_log or WorkLog()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        """Start the threads. Call it once."""
        self._thread.start()

    def stop(self) -> None:
        """Take nothing more, and return when the jobs under way are done, within 20 seconds."""
        self._stopping.set()
        self._work.set()
        self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(self._threads, "reconciler") as pool:
            while not self._stopping.is_set():
                # Cleared before looking, so that an event set meanwhile is not lost.
                self._work.clear()
                if not self._submit_due(pool):
                    self._work.wait(LOOK_EVERY_SECONDS)

    def _submit_due(self, pool: ThreadPoolExecutor) -> bool:
        """Submit one job of each kind. Return whether there was any. Never raises."""
        found: list[bool] = []
        for kind, take in self._take.items():
            with self._noting(kind):
                job = None if self._is_full() else take(self._busy())
                found.append(self._submit(pool, kind, job))
        self.finds_work = len(found) == len(self._take)
        for chore in self._chores:
            self._do_if_due(chore)
        with self._noting("report"):
            self._report(is_idle=not any(found))
        return any(found)

    @contextmanager
    def _noting(self, work: str) -> Iterator[None]:
        """Note what a block raises, and go on: one kind of work that fails stops no other."""
        # Even logging may fail, as on a full disk.
        with suppress(Exception):
            try:
                yield
            except Exception as fault:  # noqa: BLE001 - nothing restarts this thread
                self._work_log.failed(work, fault)

    def _is_full(self) -> bool:
        return self._under_way.total() >= self._threads

    def _busy(self) -> frozenset[Target]:
        """Return the targets that may have no further job now."""
        most = self._threads_per_target
        capacities = self._capacities(most)
        with self._lock:
            under_way = dict(self._under_way)
        return frozenset(
            target
            for target in capacities.keys() | under_way.keys()
            if under_way.get(target, 0) >= capacities.get(target, most)
        )

    def _submit(self, pool: ThreadPoolExecutor, kind: Kind, job: Job[Target] | None) -> bool:
        if job is None:
            return False
        with self._lock:
            self._under_way[job.target] += 1
        pool.submit(self._do, kind, job)
        return True

    def _do(self, kind: Kind, job: Job[Target]) -> None:
        result = Result()
        with self._noting(kind):
            try:
                result = job.do()
                if result.attempt is not None:
                    self._note_attempt(result.attempt)
            except ServiceUnavailable:
                raise
            except RecordUnreadable:
                pass  # the storage has logged it
            except Exception as fault:
                log.error("reconciling_one_failed", exc_info=fault)
        with self._lock:
            self._under_way[job.target] -= 1
            self._done.note(kind, result)
        self._work.set()

    def _do_if_due(self, chore: Chore) -> None:
        if time.monotonic() < chore.due_at or not chore.may_begin():
            return
        wait_seconds = chore.every.total_seconds()
        with self._noting(chore.name):
            if chore.do():
                wait_seconds = LOOK_EVERY_SECONDS
            self._work_log.succeeded(chore.name)
        chore.due_at = time.monotonic() + wait_seconds

    def _report(self, *, is_idle: bool) -> None:
        with self._lock:
            is_all_done = is_idle and not self._under_way.total()
            if not is_all_done and self._done.jobs.total() < REPORT_AFTER:
                return
            done, self._done = self._done, Round()
        report(done)
