"""The reconciler, as threads of a running process and as a command that ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Generic, TypeAlias, TypeVar

import structlog

from domain.deliver_event import ENDPOINT_IS_OFF, DeliverEvent
from domain.discard_tokens import DiscardToken
from domain.errors import ServiceUnavailable
from domain.events import GONE, DeliveryStatus, EventDelivery
from domain.identifiers import EndpointId, PspAccount
from domain.ports import Clock
from domain.reconcile import Reconcile, Round
from domain.retries import is_alarming
from domain.settle_session import SettleSession
from entrypoints.databases import cause_of

LOOK_EVERY_SECONDS: Final = 1.0
REPORT_AFTER: Final = 100
"""A busy reconciler logs a line after this many jobs."""

Target = TypeVar("Target", bound=Hashable)
"""What jobs call, and may hang: a merchant account at its PSP, or an endpoint for events."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class Chore:
    """Something to do at intervals, the first time at once. It may raise ServiceUnavailable."""

    every: timedelta
    do: Callable[[], None]
    due_at: float = 0.0


class StorageLog:
    """Logs when the storage becomes unavailable and when it is back, once each."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_without_storage = False

    def note(self, unavailable: ServiceUnavailable | None) -> None:
        """Note a failure, or with None that the storage was used."""
        with self._lock:
            was_without = self._is_without_storage
            self._is_without_storage = unavailable is not None
        if unavailable is not None and not was_without:
            log.error(
                "reconciler_without_storage",
                cause=cause_of(unavailable),
                note="nothing is lost; look at the disk, permissions and other writers",
            )
        if unavailable is None and was_without:
            log.warning("reconciler_storage_back")


@dataclass(frozen=True, kw_only=True)
class Job(Generic[Target]):
    """A piece of work that was taken. `target` is what it calls.

    `do` returns since when the PSP has not responded, or None.
    """

    target: Target
    kind: str
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
        take: Sequence[Take[Target]],
        clock: Clock,
        work: threading.Event,
        threads: int,
        threads_per_target: int,
        capacities: Callable[[int], Mapping[Target, int]] = lambda _: {},
        chores: Sequence[Chore] = (),
        storage_log: StorageLog | None = None,
    ) -> None:
        """Take the kinds of work, and `work`, the event that wakes the reconciler.

        `threads` is how many jobs it does at once, and `threads_per_target` how many of them for
        one target. `capacities` returns the targets that get less for now. Reconcilers of one
        process share their `storage_log`.
        """
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
        self._storage_log = storage_log or StorageLog()
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
        # Even logging may fail, as on a full disk.
        with suppress(Exception):
            try:
                self._do_chores()
                submitted = [
                    not self._is_full() and self._submit(pool, take(self._busy()))
                    for take in self._take
                ]
                self._storage_log.note(None)
                self._report(is_idle=not any(submitted))
                return any(submitted)
            except ServiceUnavailable as unavailable:
                self._storage_log.note(unavailable)
            except Exception as fault:
                log.error("reconciler_fault", exc_info=fault)
        return False

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

    def _submit(self, pool: ThreadPoolExecutor, job: Job[Target] | None) -> bool:
        if job is None:
            return False
        with self._lock:
            self._under_way[job.target] += 1
        pool.submit(self._do, job)
        return True

    def _do(self, job: Job[Target]) -> None:
        is_silent = False
        with suppress(Exception):
            try:
                is_silent = is_alarming(job.do(), self._clock.now())
            except ServiceUnavailable as unavailable:
                self._storage_log.note(unavailable)
            except Exception as fault:
                log.error("reconciling_one_failed", exc_info=fault)
        with self._lock:
            self._under_way[job.target] -= 1
            self._done.update({job.kind: 1, "silent": int(is_silent)})
        self._work.set()

    def _do_chores(self) -> None:
        for chore in self._chores:
            if time.monotonic() >= chore.due_at:
                try:
                    chore.do()
                except ServiceUnavailable:
                    raise
                except Exception as fault:
                    # One record that cannot be read must not stop what is due, nor other chores.
                    log.error("reconciler_fault", exc_info=fault)
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
) -> Sequence[Take[PspAccount]]:
    """Return the work at PSPs: to settle due sessions, and to discard due tokens."""

    def take_session(except_at: Collection[PspAccount]) -> Job[PspAccount] | None:
        session = settle.take(except_at=except_at)
        if session is None:
            return None
        token_id = session.token_id

        def settle_it() -> datetime | None:
            settled = settle(token_id)
            return None if settled is None else settled.unanswered_since

        return Job(target=session.psp_account, kind="sessions", do=settle_it)

    def take_discard(except_at: Collection[PspAccount]) -> Job[PspAccount] | None:
        discard = discard_token.take(except_at=except_at)
        if discard is None:
            return None
        taken = discard
        return Job(
            target=taken.psp_account,
            kind="discards",
            do=lambda: discard_token(taken).unanswered_since,
        )

    return (take_session, take_discard)


def deliveries(deliver: DeliverEvent) -> Sequence[Take[EndpointId]]:
    """Return the work at clients' endpoints: to deliver due events."""
    note_result = EndpointLog()

    def take_delivery(except_to: Collection[EndpointId]) -> Job[EndpointId] | None:
        due = deliver.take(except_to=except_to)
        if due is None:
            return None
        taken = due

        def deliver_it() -> None:
            attempted = deliver(taken)
            if attempted is not None:
                note_result(attempted)

        return Job(target=taken.endpoint_id, kind="events", do=deliver_it)

    return (take_delivery,)


class EndpointLog:
    """Logs when an endpoint stops taking events and when it takes them again, once each."""

    def __init__(self) -> None:
        self._away: set[EndpointId] = set()

    def __call__(self, delivery: EventDelivery) -> None:
        """Log what an operator must know of the result of an attempt."""
        endpoint, result = delivery.endpoint_id, delivery.last_result
        if delivery.status is DeliveryStatus.DELIVERED:
            if endpoint in self._away:
                self._away.discard(endpoint)
                log.warning("event_endpoint_back", endpoint=endpoint)
        elif result == str(GONE):
            log.error(
                "event_endpoint_disabled",
                endpoint=endpoint,
                note="it responded 410; to send events there again, remove it and add it",
            )
        elif delivery.status is DeliveryStatus.PENDING:
            if endpoint not in self._away:
                self._away.add(endpoint)
                log.warning(
                    "event_endpoint_away",
                    endpoint=endpoint,
                    result=result,
                    note="events to it are tried ten times in three days",
                )
        elif result != ENDPOINT_IS_OFF:
            log.error(
                "event_not_delivered",
                endpoint=endpoint,
                event_id=delivery.event.event_id,
                result=result,
                note="when the endpoint works: cardonfile events replay ID",
            )


def run_until_idle(reconcile: Reconcile) -> list[Round]:
    """Run rounds until nothing is due. Raises ServiceUnavailable.

    An endpoint that does not take an event gets no other, so that a backlog of an endpoint that
    hangs does not hold up the rest for hours.
    """
    rounds: list[Round] = []
    away: frozenset[EndpointId] = frozenset()
    note_result = EndpointLog()
    while not rounds or not rounds[-1].is_idle:
        done = reconcile(except_to=away)
        away |= done.away
        for each in done.attempted:
            note_result(each)
        report(done)
        rounds.append(done)
    return rounds


def report(done: Round) -> None:
    """Log a round, if it did anything."""
    for fault in done.faults:
        log.error("reconciling_one_failed", exc_info=fault)
    if done.silent:
        log.error("psp_silent_for_24_hours", silent=done.silent)
    if not done.is_idle:
        log.info("reconciled", sessions=done.sessions, discards=done.discards, events=done.events)
