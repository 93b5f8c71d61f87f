"""Run due jobs, in several threads or one after another, and run chores at intervals."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Final, Generic, TypeAlias

import structlog

from domain.errors import ServiceUnavailable
from domain.storage import RecordUnreadable
from domain.worker.jobs import Job, JobResult, Kind, Take, Target
from entrypoints.worker.reports import Done, EndpointLog, WorkLog

CHECK_EVERY_SECONDS: Final = 1.0
REPORT_AFTER: Final = 100
"""A busy runner logs a line after this many jobs."""

log = structlog.get_logger()

Execute: TypeAlias = Callable[[Callable[[], None]], object]
"""Runs a job, or lets a thread run it."""


@dataclass
class Chore:
    """A task that is done at intervals, if `may_begin` returns True.

    A chore that fails is retried after the usual interval. If `do` returns True, there is more to
    do, and `do` is called again after `rest_seconds`. Due jobs run in between.
    """

    name: str
    every: timedelta
    do: Callable[[], bool | None]
    may_begin: Callable[[], bool] = lambda: True
    rest_seconds: float = CHECK_EVERY_SECONDS
    due_at: float = 0.0
    has_more: bool = False


class JobRunner(Generic[Target]):
    """Leases due jobs, runs them, and records their results.

    `run_until_idle` runs one job after another. `start` runs several jobs at once: one thread
    leases due jobs and submits them to a thread pool. That thread looks for jobs every second, and
    also when it is woken or when a thread of the pool becomes free. Each target may use only a part
    of the pool, so that a target that hangs does not stop the others.
    """

    def __init__(
        self,
        *,
        take: Mapping[Kind, Take[Target]],
        work_log: WorkLog,
        work: threading.Event | None = None,
        threads: int = 1,
        threads_per_target: int = 1,
        capacities: Callable[[int], Mapping[Target, int]] = lambda _: {},
        chores: Sequence[Chore] = (),
    ) -> None:
        """Prepare the runner.

        `take` contains, for each kind of job, a function that leases a due job. `work` is the event
        that wakes the runner. `threads` is how many jobs run at once, and `threads_per_target` is
        how many of them may be for one target. `capacities` is called with `threads_per_target`,
        and returns a lower number for each target that may have fewer jobs at the moment.
        """
        self.finds_work = False
        """Whether the last search for jobs succeeded for every kind of job."""
        self._take = take
        self._work_log = work_log
        self._work = work or threading.Event()
        self._threads = threads
        self._threads_per_target = threads_per_target
        self._capacities = capacities
        self._chores = chores
        self._lock = threading.Lock()
        self._under_way: Counter[Target] = Counter()
        self._failed: set[str] = set()
        self._away: set[Target] = set()
        self._done = Done()
        self._note_attempt = EndpointLog()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def run_until_idle(self) -> None:
        """Run all due jobs in this thread, and the chores until they have no more to do.

        If the records of a kind of job cannot be read or written, no further jobs of this kind are
        run. If a target is unavailable, no further jobs for this target are run. Further attempts
        would delay all other work.
        """
        while self._look(_in_this_thread) or self._rests():
            pass

    def start(self) -> None:
        """Start the threads. Call it once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop leasing jobs. Return when the running jobs and chores are done."""
        self._stopping.set()
        self._work.set()
        self._thread.join()

    def _run(self) -> None:
        with ThreadPoolExecutor(self._threads, "reconciler") as pool:
            while not self._stopping.is_set():
                # The event is cleared before the search for jobs, so that it is not lost if it is
                # set meanwhile.
                self._work.clear()
                # A worker runs continually, so it retries everything in each round.
                self._failed.clear()
                self._away.clear()
                if not self._look(pool.submit):
                    self._work.wait(CHECK_EVERY_SECONDS)

    def _rests(self) -> bool:
        """Return whether a chore has more to do. If so, sleep briefly before returning."""
        seconds = [chore.rest_seconds for chore in self._chores if chore.has_more]
        if seconds:
            time.sleep(min(seconds))
        return bool(seconds)

    def _look(self, execute: Execute) -> bool:
        """Execute at most one job of each kind, and the due chores. Never raises.

        Return whether there was anything to do.
        """
        found: list[bool] = []
        for kind, take in self._take.items():
            if kind not in self._failed:
                with self._noting(kind):
                    job = None if self._is_full() else take(self._busy())
                    found.append(self._begin(kind, job, execute))
        self.finds_work = len(found) == len(self._take)
        did = [self._do_if_due(chore) for chore in self._chores]
        with self._noting("report"):
            self._report(is_idle=not any(found))
        return any(found) or any(did)

    @contextmanager
    def _noting(self, work: str) -> Iterator[None]:
        """Catch and log exceptions of a `with` block, so that they do not stop other work."""
        # Even logging may fail, as on a full disk.
        with suppress(Exception):
            try:
                yield
            except Exception as fault:  # noqa: BLE001 - nothing restarts this thread
                self._failed.add(work)
                self._work_log.failed(work, fault)

    def _is_full(self) -> bool:
        return self._under_way.total() >= self._threads

    def _busy(self) -> frozenset[Target]:
        """Return the targets for which no further job may be started at the moment."""
        most = self._threads_per_target
        capacities = self._capacities(most)
        with self._lock:
            under_way, away = dict(self._under_way), frozenset(self._away)
        return away.union(
            target
            for target in capacities.keys() | under_way.keys()
            if under_way.get(target, 0) >= capacities.get(target, most)
        )

    def _begin(self, kind: Kind, job: Job[Target] | None, execute: Execute) -> bool:
        if job is None:
            return False
        with self._lock:
            self._under_way[job.target] += 1
        execute(partial(self._do, kind, job))
        return True

    def _do(self, kind: Kind, job: Job[Target]) -> None:
        result = JobResult()
        with self._noting(kind):
            try:
                result = job.do()
            except ServiceUnavailable:
                raise
            except Exception as fault:
                result = JobResult(fault=fault)
                if not isinstance(fault, RecordUnreadable):  # the storage has logged it
                    log.error("reconciling_one_failed", exc_info=fault)
            if result.attempt is not None:
                self._note_attempt(result.attempt)
        with self._lock:
            self._under_way[job.target] -= 1
            self._done.note(kind, result)
            if result.is_target_away:
                self._away.add(job.target)
        self._work.set()

    def _do_if_due(self, chore: Chore) -> bool:
        """Do a chore if it is due, and return whether it was due."""
        if time.monotonic() < chore.due_at or not chore.may_begin():
            return False
        chore.has_more = False
        with self._noting(chore.name):
            chore.has_more = bool(chore.do())
            self._work_log.succeeded(chore.name)
        wait_seconds = chore.rest_seconds if chore.has_more else chore.every.total_seconds()
        chore.due_at = time.monotonic() + wait_seconds
        return True

    def _report(self, *, is_idle: bool) -> None:
        with self._lock:
            is_all_done = is_idle and not self._under_way.total()
            if not is_all_done and self._done.jobs.total() < REPORT_AFTER:
                return
            done, self._done = self._done, Done()
        self._work_log.report(done)


def _in_this_thread(do: Callable[[], None]) -> None:
    do()
