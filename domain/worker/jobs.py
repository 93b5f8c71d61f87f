"""The background worker's jobs: settle a session, discard a token, read a card, send an event.

`entrypoints/worker/job_runner.py` leases and runs the jobs.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import Generic, Literal, Protocol, TypeAlias, TypeVar

from domain.cards.account import Account
from domain.cards.discard import Discard
from domain.cards.discard_tokens import DiscardToken
from domain.cards.refresh_account import RefreshAccount
from domain.events.deliver_event import Attempt, DeliverEvent, EndpointState
from domain.events.event import DeliveryStatus
from domain.identifiers import EndpointId, PspAccount
from domain.outside import Clock
from domain.retries import is_alarming
from domain.sessions.session import DueSession
from domain.settling.settle_session import SettleSession

Kind: TypeAlias = Literal["sessions", "discards", "cards", "events"]
"""The kind of record that a job works on."""

Target = TypeVar("Target", bound=Hashable)
"""The remote side of a job, which may hang: a merchant account at its PSP, or an event endpoint."""


class End(StrEnum):
    """The state of a session, token, card or event after a job.

    A session is SETTLED, with or without a card, or it is still OPEN although the PSP responded. If
    the PSP did not respond, the session, token or card is WAITING.
    """

    SETTLED = "settled"
    OPEN = "open"
    DISCARDED = "discarded"
    READ = "read"
    WAITING = "waiting_for_psp"
    DELIVERED = "delivered"
    NOT_DELIVERED = "not_delivered"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobResult:
    """The result of a job, including whether its target responded.

    `end` is None if the job failed, or if another process did the work. `is_silent` means that the
    PSP has not responded for 24 hours. `attempt` is the attempt to deliver an event. `fault` is the
    exception that the job raised.
    """

    end: End | None = None
    is_silent: bool = False
    attempt: Attempt | None = None
    fault: Exception | None = None

    @property
    def is_target_away(self) -> bool:
        """Whether the target is an event endpoint that is unavailable.

        In this case, the worker lets the other events for this endpoint wait.
        """
        # No request is sent to an endpoint that is gone or off, so its other events cost no time.
        return self.attempt is not None and self.attempt.endpoint is EndpointState.AWAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[Target]):
    """A leased piece of work. If `do` raises any exception, the job is retried later."""

    target: Target
    do: Callable[[], JobResult]


Take: TypeAlias = Callable[[Collection[Target]], Job[Target] | None]
"""A function that leases and returns the job that has been due longest, or returns None. Jobs at
the given targets are left out.
"""


class _Due(Protocol):
    @property
    def psp_account(self) -> PspAccount: ...


Due = TypeVar("Due", bound=_Due)
Due_co = TypeVar("Due_co", bound=_Due, covariant=True)


def jobs_at_psps(
    settle: SettleSession, discard_token: DiscardToken, refresh: RefreshAccount, clock: Clock
) -> Mapping[Kind, Take[PspAccount]]:
    """Return the functions that lease jobs at PSPs: due sessions, discards and readings of cards."""

    def settle_it(taken: DueSession) -> JobResult:
        session = settle(taken.token_id)
        if session is None:
            return JobResult()
        end = End.SETTLED if session.is_over else End.OPEN
        return _asked(end, session.unanswered_since, clock.now())

    def discard_it(taken: Discard) -> JobResult:
        discard = discard_token(taken)
        end = None if discard.done_at is None else End.DISCARDED
        return _asked(end, discard.unanswered_since, clock.now())

    def read_it(taken: Account) -> JobResult:
        account = refresh(taken)
        return _asked(End.READ, account.unanswered_since if account else None, clock.now())

    return {
        "sessions": _at_psps(settle.take, settle_it),
        "discards": _at_psps(discard_token.take, discard_it),
        "cards": _at_psps(refresh.take, read_it),
    }


class _TakeDue(Protocol[Due_co]):
    def __call__(self, *, except_at: Collection[PspAccount]) -> Due_co | None: ...


def _at_psps(take: _TakeDue[Due], do: Callable[[Due], JobResult]) -> Take[PspAccount]:
    def take_one(except_at: Collection[PspAccount]) -> Job[PspAccount] | None:
        taken = take(except_at=except_at)
        return None if taken is None else Job(target=taken.psp_account, do=partial(do, taken))

    return take_one


def jobs_at_endpoints(deliver: DeliverEvent) -> Mapping[Kind, Take[EndpointId]]:
    """Return the function that leases jobs at event endpoints: due deliveries."""

    def take_delivery(except_to: Collection[EndpointId]) -> Job[EndpointId] | None:
        taken = deliver.take(except_to=except_to)
        if taken is None:
            return None

        def deliver_it() -> JobResult:
            attempt = deliver(taken)
            if attempt is None:
                return JobResult()
            is_delivered = attempt.delivery.status is DeliveryStatus.DELIVERED
            end = End.DELIVERED if is_delivered else End.NOT_DELIVERED
            return JobResult(end=end, attempt=attempt)

        return Job(target=taken.endpoint_id, do=deliver_it)

    return {"events": take_delivery}


def _asked(end: End | None, unanswered_since: datetime | None, now: datetime) -> JobResult:
    if unanswered_since is not None:
        end = End.WAITING
    return JobResult(end=end, is_silent=is_alarming(unanswered_since, now))
