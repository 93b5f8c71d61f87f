"""Do the jobs that are due, one after the other.

For `cardonfile reconcile`, tests and the simulation. The reconciler of `serve` and `work` does the
same jobs in several threads (`entrypoints/worker/job_runner.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Final

from domain.cards.discard_tokens import DiscardToken
from domain.cards.refresh_account import RefreshAccount
from domain.errors import ServiceUnavailable
from domain.events.deliver_event import Attempt, DeliverEvent
from domain.identifiers import EndpointId
from domain.outside import Clock
from domain.settling.settle_session import SettleSession
from domain.worker.jobs import End, Job, Kind, Result, Take, Target, jobs_at_endpoints, jobs_at_psps

MAX_PER_ROUND: Final = 100


@dataclass(slots=True, kw_only=True)
class Round:
    """What one round of reconciling did, so far.

    `jobs` counts those that were done, also those that failed, and `ends` what became of them.
    `faults` holds the exceptions of single ones, which are tried again later. `silent` counts those
    whose PSP has not responded for 24 hours. `attempts` holds those to deliver events. `away` are the
    endpoints that get nothing more: they did not take an event. `unavailable` is set when work could
    not be read or written; that is not counted.
    """

    jobs: Counter[Kind] = field(default_factory=Counter)
    ends: Counter[End] = field(default_factory=Counter)
    faults: list[Exception] = field(default_factory=list)
    silent: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    away: set[EndpointId] = field(default_factory=set)
    unavailable: ServiceUnavailable | None = None

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return not self.jobs.total()

    def note(self, kind: Kind, result: Result) -> None:
        """Count a job, and keep what it found out."""
        self.jobs[kind] += 1
        self.ends.update([result.end] if result.end else [])
        self.silent += result.is_silent
        self.attempts += [result.attempt] if result.attempt else []


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """Use case: process the sessions, discards, cards and events that are due, one after the other.

    One round processes at most 100 of each. A failure of one does not stop the others: an endpoint
    that does not take an event gets no other in this round, and a kind of work that cannot be read
    or written ends for this round. May run in several processes at once: a lease keeps each of them
    with one process.
    """

    settle: SettleSession
    discard_token: DiscardToken
    refresh: RefreshAccount
    deliver_event: DeliverEvent
    clock: Clock

    def __call__(self, *, except_to: Collection[EndpointId] = ()) -> Round:
        """Run one round. Nothing is sent to the endpoints in `except_to`."""
        done = Round(away=set(except_to))
        at_psps = jobs_at_psps(self.settle, self.discard_token, self.refresh, self.clock)
        _do_due(at_psps, set(), done)
        _do_due(jobs_at_endpoints(self.deliver_event), done.away, done)
        return done


def _do_due(take: Mapping[Kind, Take[Target]], away: set[Target], done: Round) -> None:
    """Do what is due, the kinds in turn. Targets that turn out to be away are added to `away`."""
    left = dict(take)
    for _ in range(MAX_PER_ROUND):
        for kind, take_one in tuple(left.items()):
            try:
                job = take_one(away)
                if job is None:
                    del left[kind]
                    continue
                result = _result(job, done.faults)
            except ServiceUnavailable as unavailable:
                done.unavailable = done.unavailable or unavailable
                del left[kind]
                continue
            done.note(kind, result)
            if result.is_target_away:
                away.add(job.target)


def _result(job: Job[Target], faults: list[Exception]) -> Result:
    """Do a job. Collect its exception, so that one faulty session does not stop the others."""
    try:
        return job.do()
    except ServiceUnavailable:
        raise
    except Exception as fault:  # noqa: BLE001 - a bug in an adapter may raise anything
        faults.append(fault)
        return Result()
