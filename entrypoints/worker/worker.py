"""The background worker: jobs at PSPs, jobs at endpoints, chores, and the background work of PSPs."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from importlib.metadata import version
from typing import Final

import structlog

from domain.errors import ServiceUnavailable
from domain.events.event import MAX_ENDPOINTS
from domain.identifiers import WorkerId
from domain.worker.heartbeat import BEAT_EVERY, WorkerProcess, WorkerState
from entrypoints.container import Container
from entrypoints.worker.job_runner import Chore, JobRunner
from entrypoints.worker.reports import CardTestingLog, NotAgreedLog, WorkLog

STOP_SECONDS: Final = 20
HOUSEKEEPING_EVERY: Final = timedelta(minutes=15)
"""The interval between deletions of old records, and between notices of expiry.

Both chores do nothing until the clock of the process has advanced evenly for some minutes
(`Clock.is_steady`).
"""
CHECK_DEADLINES_EVERY: Final = timedelta(minutes=1)
"""How often agreements are ended, cards are removed, and unopened links are reported."""
COMPLETE_AGREEMENTS_EVERY: Final = timedelta(hours=1)
FINISH_ERASURES_EVERY: Final = timedelta(seconds=20)
LOOK_FOR_CARD_TESTING_EVERY: Final = timedelta(minutes=5)

log = structlog.get_logger()


def chores(container: Container) -> Sequence[Chore]:
    """Return the chores that both the worker and `cardonfile reconcile` run."""
    return [
        Chore("forget_old_records", HOUSEKEEPING_EVERY, container.forget_old_records()),
        Chore("finish_erasures", FINISH_ERASURES_EVERY, container.finish_erasures()),
        Chore("notice_expiry", HOUSEKEEPING_EVERY, container.notice_expiry()),
        Chore(
            "complete_agreements",
            COMPLETE_AGREEMENTS_EVERY,
            NotAgreedLog(container.complete_agreements()),
        ),
        Chore("end_agreements", CHECK_DEADLINES_EVERY, container.end_agreements()),
        Chore("notice_unopened", CHECK_DEADLINES_EVERY, container.notice_unopened()),
        Chore("remove_ended_cards", CHECK_DEADLINES_EVERY, container.remove_ended_cards()),
    ]


class Worker:
    """Runs three kinds of work, each in its own threads.

    The kinds are jobs that call PSPs, jobs that send to endpoints, and the background work of PSP
    adapters.

    The threads that look for jobs also run the chores.
    """

    def __init__(self, container: Container, *, base_url: str) -> None:
        """Build the parts of the worker. Raises SettingsError.

        `base_url` is the URL at which webhooks from PSPs reach the service.
        """
        settings = container.settings()
        self._process = WorkerProcess(
            worker_id=WorkerId(container.ids().uuid()),
            host=socket.gethostname(),
            pid=os.getpid(),
            release=version("cardonfile"),
        )
        self._leave_heartbeat = container.leave_heartbeat()
        self._work_log = WorkLog()
        at_psps, at_endpoints = container.jobs_at_psps(), container.jobs_at_endpoints()
        self._kinds = (*at_psps, *at_endpoints)
        self._at_psps = JobRunner(
            work_log=self._work_log,
            take=at_psps,
            work=container.work_for_reconciler(),
            threads=settings.worker_threads,
            threads_per_target=max(1, settings.worker_threads * 3 // 4),
            # While a circuit breaker is open, no jobs are run for its account, and its sessions
            # stay due.
            capacities=container.breakers().capacities,
            chores=[
                Chore("heartbeat", BEAT_EVERY, self._beat, self._finds_work),
                Chore(
                    "find_card_testing",
                    LOOK_FOR_CARD_TESTING_EVERY,
                    CardTestingLog(container.find_card_testing(), container.clock()),
                ),
            ],
        )
        # Every endpoint has a thread, so no endpoint waits for another. Slow chores run here.
        self._at_endpoints = JobRunner(
            work_log=self._work_log,
            take=at_endpoints,
            threads=MAX_ENDPOINTS,
            threads_per_target=1,
            chores=chores(container),
        )
        self._psp_work = [
            work
            for name, adapter in container.psp_adapters().items()
            if (work := settings.psps[name].background(adapter, f"{base_url}/webhooks/{name}"))
        ]

    def start(self) -> None:
        """Start the threads of the worker. Call this method once."""
        self._at_psps.start()
        self._at_endpoints.start()
        for psp_work in self._psp_work:
            _log_faults(psp_work.start)

    def stop(self) -> None:
        """Finish the running jobs, and stop.

        Once the jobs at PSPs are done, this method waits at most 20 seconds for the background work
        of each PSP, and at most 20 seconds for the jobs at endpoints.
        """
        sending = threading.Thread(target=self._at_endpoints.stop, daemon=True)
        sending.start()
        self._at_psps.stop()
        # If the database is unavailable, other workers will log this one as lost.
        with suppress(ServiceUnavailable):
            self._leave(WorkerState.STOPPED)
        stopping = [
            threading.Thread(target=_log_faults, args=(psp_work.stop,), daemon=True)
            for psp_work in self._psp_work
        ]
        for thread in stopping:
            thread.start()
        stopping.append(sending)
        for thread in stopping:
            thread.join(STOP_SECONDS)

    def _finds_work(self) -> bool:
        """Return whether both runners succeeded when they last looked for work."""
        return self._at_psps.finds_work and self._at_endpoints.finds_work

    def _beat(self) -> None:
        """Store a heartbeat.

        If the heartbeat is stored, the database works, so kinds of work that were logged as failing
        are logged as working again.
        """
        self._leave(WorkerState.RUNNING)
        self._work_log.succeeded(*self._kinds)

    def _leave(self, state: WorkerState) -> None:
        for lost in self._leave_heartbeat(self._process, state):
            log.error("worker_lost", host=lost.host, pid=lost.pid, release=lost.release)


def _log_faults(do: Callable[[], None]) -> None:
    """Call a function of a PSP's plugin. If it raises an exception, log the exception."""
    try:
        do()
    except Exception as fault:
        log.error("psp_background_fault", exc_info=fault)
