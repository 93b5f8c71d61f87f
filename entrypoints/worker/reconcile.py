"""Do the work of `cardonfile reconcile`: run all due jobs, one after another."""

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
"""The pause of a chore that has more to do, in which others can use the database."""


def reconcile_until_idle(container: Container, chores: Sequence[Chore] = ()) -> Done:
    """Run due jobs and chores until nothing is left to do, and return what was done.

    If an endpoint does not accept an event, no further events are sent to this endpoint during the
    run, because the backlog of an endpoint that hangs would delay all other work for hours. Several
    processes may run this at once, because each job is leased by one of them. If a part of the work
    could not be read or written, the rest is done, and then the first error is raised, such as
    ServiceUnavailable.
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
    """The log of one run. It keeps the results, and the errors that prevented work."""

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
