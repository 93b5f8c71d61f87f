"""What `cardonfile reconcile` does: all that is due, one job after the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Final, get_args

from typing_extensions import override

from domain.errors import ServiceUnavailable
from domain.worker.jobs import Kind
from entrypoints.container import Container
from entrypoints.worker.job_runner import Chore, JobRunner
from entrypoints.worker.reports import Done, WorkLog

REST_SECONDS: Final = 0.05
"""How long a chore of which there is more leaves the database to others."""


def reconcile_until_idle(container: Container, chores: Sequence[Chore] = ()) -> Done:
    """Do the jobs that are due and the chores until none is left, and return what was done.

    An endpoint that does not take an event gets no other, so that a backlog of an endpoint that
    hangs does not hold up the rest for hours. May run in several processes at once: a lease keeps
    each job with one of them. Raises ServiceUnavailable after the rest is done, if a part could not
    be read or written.
    """
    work_log = _RunLog()
    once = [replace(each, every=timedelta.max, rest_seconds=REST_SECONDS) for each in chores]
    for runner in (
        JobRunner(take=container.jobs_at_psps(), work_log=work_log, chores=once),
        JobRunner(take=container.jobs_at_endpoints(), work_log=work_log),
    ):
        runner.run_until_idle()
    if work_log.failures:
        raise work_log.failures[0]
    return work_log.done


class _RunLog(WorkLog):
    """Logs a run that ends, and keeps what was done in it and why other work could not be done."""

    def __init__(self) -> None:
        super().__init__()
        self.done = Done()
        self.failures: list[Exception] = []

    @override
    def report(self, done: Done) -> None:
        super().report(done)
        self.done.add(done)

    @override
    def failed(self, work: str, fault: Exception) -> None:
        if isinstance(fault, ServiceUnavailable) or work in get_args(Kind):
            self.failures.append(fault)
        else:
            super().failed(work, fault)
