"""The jobs of the background worker: to settle a session, discard a token, or deliver an event.

Whoever runs them takes one at a time, each under a lease: `reconcile.py` one after the other, and
`entrypoints/worker/job_runner.py` in several threads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, Literal, TypeAlias, TypeVar

from domain.cards.discard_tokens import DiscardToken
from domain.events.deliver_event import Attempt, DeliverEvent, EndpointState
from domain.identifiers import EndpointId, PspAccount
from domain.outside import Clock
from domain.retries import is_alarming
from domain.settling.settle_session import SettleSession

Kind: TypeAlias = Literal["sessions", "discards", "events"]
"""What a job works on."""

Target = TypeVar("Target", bound=Hashable)
"""What jobs call, and may hang: a merchant account at its PSP, or an endpoint for events."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """What a job found out about its target.

    `is_silent`: the PSP has not responded for 24 hours. `attempt` is the one to deliver an event.
    """

    is_silent: bool = False
    attempt: Attempt | None = None

    @property
    def is_target_away(self) -> bool:
        """Whether the target is an endpoint that is away, so that other events to it can wait."""
        # One that is gone or off gets no further request, so what is due to it takes no time.
        return self.attempt is not None and self.attempt.endpoint is EndpointState.AWAY


@dataclass(frozen=True, slots=True, kw_only=True)
class Job(Generic[Target]):
    """A piece of work that was taken. `do` may raise anything; the job is then due again later."""

    target: Target
    do: Callable[[], Result]


Take: TypeAlias = Callable[[Collection[Target]], Job[Target] | None]
"""Takes the job that has been due the longest, except for these targets; None when none is due."""


def jobs_at_psps(
    settle: SettleSession, discard_token: DiscardToken, clock: Clock
) -> Mapping[Kind, Take[PspAccount]]:
    """Return how to take the jobs at PSPs: to settle due sessions, and to discard due tokens."""

    def take_session(except_at: Collection[PspAccount]) -> Job[PspAccount] | None:
        taken = settle.take(except_at=except_at)
        if taken is None:
            return None

        def settle_it() -> Result:
            session = settle(taken.token_id)
            unanswered_since = None if session is None else session.unanswered_since
            return Result(is_silent=is_alarming(unanswered_since, clock.now()))

        return Job(target=taken.psp_account, do=settle_it)

    def take_discard(except_at: Collection[PspAccount]) -> Job[PspAccount] | None:
        taken = discard_token.take(except_at=except_at)
        if taken is None:
            return None

        def discard_it() -> Result:
            discard = discard_token(taken)
            return Result(is_silent=is_alarming(discard.unanswered_since, clock.now()))

        return Job(target=taken.psp_account, do=discard_it)

    return {"sessions": take_session, "discards": take_discard}


def jobs_at_endpoints(deliver: DeliverEvent) -> Mapping[Kind, Take[EndpointId]]:
    """Return how to take the jobs at clients' endpoints: to deliver due events."""

    def take_delivery(except_to: Collection[EndpointId]) -> Job[EndpointId] | None:
        taken = deliver.take(except_to=except_to)
        if taken is None:
            return None
        return Job(target=taken.endpoint_id, do=lambda: Result(attempt=deliver(taken)))

    return {"events": take_delivery}
