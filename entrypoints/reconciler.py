"""The reconciler, as threads of a running process and as a command that ends."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, NamedTuple

import structlog

from adapters.psp_calls.circuit_breaker import CircuitBreakers
from domain.discard_tokens import DiscardToken
from domain.errors import ServiceUnavailable
from domain.identifiers import PspAccount
from domain.ports import Clock
from domain.reconcile import Round
from domain.retries import is_alarming
from domain.settle_session import SettleSession
from entrypoints.databases import cause_of

LOOK_EVERY_SECONDS: Final = 1.0
REPORT_AFTER: Final = 100
"""A busy reconciler logs a line after this many sessions and discards."""

log = structlog.get_logger()


@dataclass(kw_only=True)
class Chore:
    """Something to do at intervals, the first time at once. It may raise ServiceUnavailable."""

    every: timedelta
    do: Callable[[], None]
    due_at: float = 0.0


class _Job(NamedTuple):
    account: PspAccount
    kind: str
    do: Callable[[], datetime | None]
    """Returns since when the PSP has not answered, or None."""


class Reconciler:
    """Settles due sessions and discards due tokens, several at once, in threads of its own.

    One thread takes what is due and submits it to a pool. It looks every second, when it is woken,
    and when a thread of the pool becomes free. A merchant account gets at most three quarters of
    the pool. While its circuit breaker is open it gets nothing, and its sessions stay due.
    """

    def __init__(
        self,
        *,
        settle: SettleSession,
        discard_token: DiscardToken,
        breakers: CircuitBreakers,
        clock: Clock,
        work: threading.Event,
        threads: int,
        chores: Sequence[Chore] = (),
    ) -> None:
        """Take the use cases, and `work`, the event that wakes the reconciler.

        `threads` is how many sessions and discards it handles at once.
        """
        self._settle = settle
        self._discard_token = discard_token
        self._breakers = breakers
        self._clock = clock
        self._work = work
        self._chores = chores
        self._threads = threads
        self._lock = threading.Lock()
        self._under_way: Counter[PspAccount] = Counter()
        self._done: Counter[str] = Counter()
        self._stopping = threading.Event()
        self._is_without_storage = False
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
        """Submit one session and one discard. Return whether there was any. Never raises."""
        # Even logging may fail, as on a full disk.
        with suppress(Exception):
            try:
                self._do_chores()
                submitted = [
                    self._submit(pool, take()) for take in (self._take_session, self._take_discard)
                ]
                self._note_storage(None)
                self._report(is_idle=not any(submitted))
                return any(submitted)
            except ServiceUnavailable as unavailable:
                self._note_storage(unavailable)
            except Exception as fault:
                log.error("reconciler_fault", exc_info=fault)
        return False

    def _take_session(self) -> _Job | None:
        if self._is_full():
            return None
        session = self._settle.take(except_at=self._busy())
        if session is None:
            return None
        token_id = session.token_id

        def settle() -> datetime | None:
            settled = self._settle(token_id)
            return None if settled is None else settled.unanswered_since

        return _Job(session.psp_account, "sessions", settle)

    def _take_discard(self) -> _Job | None:
        if self._is_full():
            return None
        discard = self._discard_token.take(except_at=self._busy())
        if discard is None:
            return None
        taken = discard
        return _Job(
            taken.psp_account, "discards", lambda: self._discard_token(taken).unanswered_since
        )

    def _is_full(self) -> bool:
        return self._under_way.total() >= self._threads

    def _busy(self) -> frozenset[PspAccount]:
        """Return the merchant accounts that may have no further job now."""
        most = max(1, self._threads * 3 // 4)
        capacities = self._breakers.capacities(most)
        with self._lock:
            under_way = dict(self._under_way)
        return frozenset(
            account
            for account in capacities.keys() | under_way.keys()
            if under_way.get(account, 0) >= capacities.get(account, most)
        )

    def _submit(self, pool: ThreadPoolExecutor, job: _Job | None) -> bool:
        if job is None:
            return False
        with self._lock:
            self._under_way[job.account] += 1
        pool.submit(self._do, job)
        return True

    def _do(self, job: _Job) -> None:
        is_silent = False
        with suppress(Exception):
            try:
                is_silent = is_alarming(job.do(), self._clock.now())
            except ServiceUnavailable as unavailable:
                self._note_storage(unavailable)
            except Exception as fault:
                log.error("reconciling_one_failed", exc_info=fault)
        with self._lock:
            self._under_way[job.account] -= 1
            self._done.update({job.kind: 1, "silent": int(is_silent)})
        self._work.set()

    def _do_chores(self) -> None:
        for chore in self._chores:
            if time.monotonic() >= chore.due_at:
                chore.do()
                chore.due_at = time.monotonic() + chore.every.total_seconds()

    def _note_storage(self, unavailable: ServiceUnavailable | None) -> None:
        """Log once that the storage is unavailable, and once that it is back."""
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

    def _report(self, *, is_idle: bool) -> None:
        with self._lock:
            is_all_done = is_idle and not self._under_way.total()
            if not is_all_done and self._done.total() < REPORT_AFTER:
                return
            done, self._done = self._done, Counter()
        report(Round(sessions=done["sessions"], discards=done["discards"], silent=done["silent"]))


def run_until_idle(reconcile: Callable[[], Round]) -> list[Round]:
    """Run rounds until nothing is due. Raises ServiceUnavailable."""
    rounds = [reconcile()]
    while not rounds[-1].is_idle:
        report(rounds[-1])
        rounds.append(reconcile())
    report(rounds[-1])
    return rounds


def report(done: Round) -> None:
    """Log a round, if it did anything."""
    for fault in done.faults:
        log.error("reconciling_one_failed", exc_info=fault)
    if done.silent:
        log.error("psp_silent_for_24_hours", silent=done.silent)
    if not done.is_idle:
        log.info("reconciled", sessions=done.sessions, discards=done.discards)
