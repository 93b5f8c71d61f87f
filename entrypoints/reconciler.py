"""The reconciler as a thread of the service, and as a command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final, Protocol

import structlog

from domain.errors import ServiceUnavailable
from domain.reconcile import Round
from entrypoints.databases import cause_of

LOOK_EVERY_SECONDS: Final = 1.0
STOP_WITHIN_SECONDS: Final = 10.0

log = structlog.get_logger()


class Reconciling(Protocol):
    """The use case as the thread calls it."""

    def __call__(self, *, is_stopping: Callable[[], bool]) -> Round:
        """Do one round."""
        ...


class ReconcilerThread:
    """Runs rounds while there is work, and looks for more when woken or after a second."""

    def __init__(self, reconcile: Reconciling, work: threading.Event) -> None:
        """Take the use case, and the event that is set when there may be work."""
        self._reconcile = reconcile
        self._work = work
        self._stopping = threading.Event()
        self._is_without_storage = False
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        """Start in the background; once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the session or discard that is under way."""
        self._stopping.set()
        self._work.set()
        self._thread.join(STOP_WITHIN_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._work.clear()
            if not self._has_more_to_do():
                self._work.wait(LOOK_EVERY_SECONDS)

    def _has_more_to_do(self) -> bool:
        """Do one round. Whatever goes wrong, the log included, the thread goes on."""
        with suppress(Exception):
            try:
                done = self._reconcile(is_stopping=self._stopping.is_set)
                if self._is_without_storage:
                    self._is_without_storage = False
                    log.warning("reconciler_storage_back")
                report(done)
                return not done.is_idle and not done.faults
            except ServiceUnavailable as unavailable:
                if not self._is_without_storage:
                    self._is_without_storage = True
                    log.error(
                        "reconciler_without_storage",
                        cause=cause_of(unavailable),
                        note="nothing is lost; look at the disk, permissions and other writers",
                    )
            except Exception as fault:
                log.error("reconciler_fault", exc_info=fault)
        return False


def run_until_idle(reconcile: Callable[[], Round]) -> list[Round]:
    """Run rounds until nothing is due. Raises ServiceUnavailable."""
    rounds = [reconcile()]
    while not rounds[-1].is_idle:
        report(rounds[-1])
        rounds.append(reconcile())
    report(rounds[-1])
    return rounds


def report(done: Round) -> None:
    """Write what an operator wants to know of a round."""
    for fault in done.faults:
        log.error("reconciling_one_failed", exc_info=fault)
    if done.silent:
        log.error("psp_silent_for_24_hours", silent=done.silent)
    if not done.is_idle:
        log.info("reconciled", sessions=done.sessions, discards=done.discards)
