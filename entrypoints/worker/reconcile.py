"""The work of `cardonfile reconcile`: run all due jobs, one after another."""

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
"""How long a chore with more to do leaves the database to others."""


def reconcile_until_idle(container: Container, chores: Sequence[Chore] = ()) -> Done:
    """Run due jobs, one kind after another, and the chores; return what was done.

    An endpoint that does not accept an event gets no further event, so that a hanging endpoint's
    backlog does not delay the rest for hours. May run in several processes at once, because a lease
    assigns each job to one process. Raises ServiceUnavailable at the end, if a part could not be
    read or written.
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
    """The log of a single run: what was done in it, and why other work could not be done."""

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
