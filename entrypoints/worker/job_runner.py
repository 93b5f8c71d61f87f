"""The reconciler, as threads of a running process and as a command that ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeAlias, TypeVar

import structlog

from domain.cards.discard_tokens import DiscardToken
from domain.errors import ServiceUnavailable
from domain.events.deliver_event import DeliverEvent
from domain.identifiers import EndpointId, PspAccount
from domain.outside import Clock
from domain.retries import is_alarming
from domain.settling.settle_session import SettleSession
from domain.storage import RecordUnreadable
from domain.worker.reconcile import Reconcile, Round
from entrypoints.worker.reports import EndpointLog, WorkLog, report

LOOK_EVERY_SECONDS: Final = 1.0
REPORT_AFTER: Final = 100
"""A busy reconciler logs a line after this many jobs."""

Target = TypeVar("Target", bound=Hashable)
"""What jobs call, and may hang: a merchant account at its PSP, or an endpoint for events."""

log = structlog.get_logger()


@dataclass
class Chore:
    """Something to do at intervals, once `may_begin` returns True. If it fails, it is done later."""

    name: str
    every: timedelta
    do: Callable[[], None]
    may_begin: Callable[[], bool] = lambda: True
    due_at: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Job(Generic[Target]):
    """A piece of work that was taken. `target` is what it calls.

    `do` returns since when the PSP has not responded, or None.
    """

    target: Target
    do: Callable[[], datetime | None]


Take: TypeAlias = Callable[[Collection[Target]], Job[Target] | None]
"""Takes the job that has been due the longest, except for these targets; None when none is due."""


class Reconciler(Generic[Target]):
    """Does what is due, several jobs at once, in threads of its own.

    One thread takes what is due and submits it to a pool. It looks every second, when it is woken,
    and when a thread of the pool becomes free. A target gets a part of the pool only, so that one
    that hangs does not stop the others.
    """

    def __init__(
        self,
        *,
        take: Mapping[str, Take[Target]],
        clock: Clock,
        work: threading.Event,
        threads: int,
        threads_per_target: int,
        capacities: Callable[[int], Mapping[Target, int]] = lambda _: {},
        chores: Sequence[Chore] = (),
        work_log: WorkLog | None = None,
    ) -> None:
        """Take the kinds of work by name, and `work`, the event that wakes the reconciler.

        `threads` is how many jobs it does at once, and `threads_per_target` how many of them for
        one target. `capacities` returns the targets that get less for now.
        """
        self.finds_work = False
        """Whether it has looked for all kinds of work without an error, the last time."""
        self._take = take
        self._clock = clock
        self._work = work
        self._capacities = capacities
        self._chores = chores
        self._threads = threads
        self._threads_per_target = threads_per_target
        self._lock = threading.Lock()
        self._under_way: Counter[Target] = Counter()
        self._done: Counter[str] = Counter()
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

    def _submit(self, pool: ThreadPoolExecutor, kind: str, job: Job[Target] | None) -> bool:
        if job is None:
            return False
        with self._lock:
            self._under_way[job.target] += 1
        pool.submit(self._do, kind, job)
        return True

    def _do(self, kind: str, job: Job[Target]) -> None:
        is_silent = False
        with self._noting(kind):
            try:
                is_silent = is_alarming(job.do(), self._clock.now())
            except ServiceUnavailable:
                raise
            except RecordUnreadable:
                pass  # the storage has logged it
            except Exception as fault:
                log.error("reconciling_one_failed", exc_info=fault)
        with self._lock:
            self._under_way[job.target] -= 1
            self._done.update({kind: 1, "silent": int(is_silent)})
        self._work.set()

    def _do_if_due(self, chore: Chore) -> None:
        if time.monotonic() < chore.due_at or not chore.may_begin():
            return
        with self._noting(chore.name):
            chore.do()
            self._work_log.succeeded(chore.name)
        chore.due_at = time.monotonic() + chore.every.total_seconds()

    def _report(self, *, is_idle: bool) -> None:
        with self._lock:
            is_all_done = is_idle and not self._under_way.total()
            if not is_all_done and self._done.total() < REPORT_AFTER:
                return
            done, self._done = self._done, Counter()
        report(
            Round(
                sessions=done["sessions"],
                discards=done["discards"],
                events=done["events"],
                silent=done["silent"],
            )
        )


def sessions_and_discards(
    settle: SettleSession, discard_token: DiscardToken
) -> Mapping[str, Take[PspAccount]]:
    """Return the work at PSPs: to settle due sessions, and to discard due tokens."""

    def take_session(except_at: Collection[PspAccount]) -> Job[PspAccount] | None:
        taken = settle.take(except_at=except_at)
        if taken is None:
            return None

        def settle_it() -> datetime | None:
            settled = settle(taken.token_id)
            return None if settled is None else settled.unanswered_since

        return Job(target=taken.psp_account, do=settle_it)

    def take_discard(except_at: Collection[PspAccount]) -> Job[PspAccount] | None:
        taken = discard_token.take(except_at=except_at)
        if taken is None:
            return None
        return Job(target=taken.psp_account, do=lambda: discard_token(taken).unanswered_since)

    return {"sessions": take_session, "discards": take_discard}


def deliveries(deliver: DeliverEvent) -> Mapping[str, Take[EndpointId]]:
    """Return the work at clients' endpoints: to deliver due events."""
    note_result = EndpointLog()

    def take_delivery(except_to: Collection[EndpointId]) -> Job[EndpointId] | None:
        taken = deliver.take(except_to=except_to)
        if taken is None:
            return None

        def deliver_it() -> None:
            attempt = deliver(taken)
            if attempt is not None:
                note_result(attempt)

        return Job(target=taken.endpoint_id, do=deliver_it)

    return {"events": take_delivery}


def run_until_idle(reconcile: Reconcile, chores: Sequence[Callable[[], None]] = ()) -> list[Round]:
    """Do the chores, and run rounds until nothing is due. Raises ServiceUnavailable at the end.

    An endpoint that does not take an event gets no other, so that a backlog of an endpoint that
    hangs does not hold up the rest for hours.
    """
    unavailable: list[ServiceUnavailable] = []
    for chore in chores:
        try:
            chore()
        except ServiceUnavailable as error:
            unavailable.append(error)
        except Exception as fault:
            log.error("reconciler_fault", exc_info=fault)
    rounds: list[Round] = []
    away: frozenset[EndpointId] = frozenset()
    note_result = EndpointLog()
    while not rounds or not rounds[-1].is_idle:
        done = reconcile(except_to=away)
        away |= done.away
        for attempt in done.attempts:
            note_result(attempt)
        report(done)
        rounds.append(done)
        unavailable += [done.unavailable] if done.unavailable else []
    if unavailable:
        raise unavailable[0]
    return rounds
