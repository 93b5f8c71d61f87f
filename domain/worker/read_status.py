"""Read the status of an installation: its workers and its waiting work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

from domain.access.token import EXPIRES_SOON, AccessToken
from domain.events.event import DeliveryCounts, EventEndpoint
from domain.identifiers import PspAccount
from domain.outside import Clock
from domain.personal_data.erasure import Erasure
from domain.retries import Waiting
from domain.storage import Storage
from domain.worker.heartbeat import SeenWorker
from domain.worker.jobs import Kind

DueKind: TypeAlias = Kind | Literal["erasures"]
"""The kinds of waiting work: the worker's jobs, and all erasures that are not done."""


class EndpointStatus(NamedTuple):
    """An event endpoint, and the counts of the deliveries that it has not accepted."""

    endpoint: EventEndpoint
    counts: DeliveryCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of an installation at one time.

    - `workers`: the workers with a heartbeat in the last day.
    - `due`: the work that a worker should do now, and since when it has waited.
    - `unanswered`: sessions, discards and cards whose PSP has not responded.
    - `erasures`: the erasures that a merchant account has not completed yet.
    - `readings`: how many cards were read at each merchant account in the last minute. The maximum
      is READINGS_PER_MINUTE.
    - `expiring`: the access tokens that expire within 14 days.
    """

    workers: Sequence[SeenWorker]
    due: Mapping[DueKind, Waiting]
    unanswered: Mapping[PspAccount, Waiting]
    erasures: Mapping[PspAccount, Waiting]
    readings: Mapping[PspAccount, int]
    endpoints: Sequence[EndpointStatus]
    expiring: Sequence[AccessToken]

    @property
    def is_worker_missing(self) -> bool:
        """Whether the last heartbeat of every worker is more than a minute old."""
        return all(worker.is_missing for worker in self.workers)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadStatus:
    """Use case: read the status. Only indexes are read. Raises ServiceUnavailable."""

    storage: Storage
    clock: Clock

    def __call__(self) -> Status:
        now = self.clock.now()
        with self.storage.read() as unit:
            counts = unit.event_deliveries.counts()
            return Status(
                workers=unit.workers.seen(now),
                due={
                    "sessions": unit.sessions.count_due(now),
                    "discards": unit.discards.count_due(now),
                    "cards": unit.accounts.count_due(now),
                    "events": unit.event_deliveries.count_due(now),
                    "erasures": unit.erasures.count_unfinished(),
                },
                unanswered=_together(
                    unit.sessions.unanswered(),
                    unit.discards.unanswered(),
                    unit.accounts.unanswered(),
                ),
                erasures=_by_account(unit.erasures.unfinished()),
                readings=unit.accounts.count_asked(now),
                endpoints=[
                    EndpointStatus(each, counts.get(each.endpoint_id, DeliveryCounts()))
                    for each in unit.event_endpoints.all()
                ],
                expiring=unit.access_tokens.expiring(now, until=now + EXPIRES_SOON),
            )


def _together(*found: Mapping[PspAccount, Waiting]) -> Mapping[PspAccount, Waiting]:
    together = {}
    for account in sorted({account for each in found for account in each}):
        waiting = [each[account] for each in found if account in each]
        together[account] = Waiting(
            sum(each.items for each in waiting), min(each.since for each in waiting if each.since)
        )
    return together


def _by_account(erasures: Sequence[Erasure]) -> Mapping[PspAccount, Waiting]:
    accounts = sorted({account for erasure in erasures for account in erasure.waits_for})
    since = {
        account: [each.erased_at for each in erasures if account in each.waits_for]
        for account in accounts
    }
    return {account: Waiting(len(times), min(times)) for account, times in since.items()}
