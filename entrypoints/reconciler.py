"""The reconciler as a thread of the service, and as a command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final

import structlog

from domain.errors import ServiceUnavailable
from domain.reconcile import Round

LOOK_EVERY_SECONDS: Final = 1.0
STOP_WITHIN_SECONDS: Final = 30.0

log = structlog.get_logger()


class ReconcilerThread:
    """Runs rounds while there is work, and looks for more when woken or after a second."""

    def __init__(self, reconcile: Callable[[], Round], work: threading.Event) -> None:
        """Take the use case, and the event that is set when there may be work."""
        self._reconcile = reconcile
        self._work = work
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="reconciler", daemon=True)

    def start(self) -> None:
        """Start in the background; once."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the round that is under way."""
        self._stopping.set()
        self._work.set()
        self._thread.join(STOP_WITHIN_SECONDS)

    def _run(self) -> None:
        while not self._stopping.is_set():
            self._work.clear()
            try:
                done = self._reconcile()
            except ServiceUnavailable:
                log.error("reconciler_without_storage")
            except Exception as fault:
                log.error("reconciler_fault", exc_info=fault)
            else:
                report(done)
                if not done.is_idle and not done.faults:
                    continue
            self._work.wait(LOOK_EVERY_SECONDS)


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
        log.error("psp_silent_for_24_hours", sessions=len(done.silent))
    if not done.is_idle:
        log.info("reconciled", sessions=done.sessions, discards=done.discards)
