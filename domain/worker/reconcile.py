"""Process the sessions, discards and events that are due, as `cardonfile reconcile` does.

`serve` and `work` do the same with several threads, in `entrypoints/worker/job_runner.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from domain.cards.discard import Discard
from domain.cards.discard_tokens import DiscardToken
from domain.errors import ServiceUnavailable
from domain.events.deliver_event import Attempt, DeliverEvent, EndpointState
from domain.identifiers import EndpointId
from domain.outside import Clock
from domain.retries import is_alarming
from domain.sessions.session import CardSession
from domain.settling.settle_session import SettleSession

MAX_PER_ROUND: Final = 100


@dataclass(slots=True, kw_only=True)
class Round:
    """What one round of reconciling did, so far.

    `sessions`, `discards` and `events` count what was processed. `faults` holds the exceptions of
    single ones, which are tried again later. `silent` counts those whose PSP has not responded for
    24 hours. `attempts` holds those to deliver events. `unavailable` is set
    when work could not be read or written; that is not counted.
    """

    sessions: int = 0
    discards: int = 0
    events: int = 0
    faults: list[Exception] = field(default_factory=list)
    silent: int = 0
    attempts: list[Attempt] = field(default_factory=list)
    unavailable: ServiceUnavailable | None = None

    @property
    def away(self) -> frozenset[EndpointId]:
        """The endpoints that did not take an event."""
        # Nothing was sent to an endpoint that is off, so it takes no time.
        states = (EndpointState.AWAY, EndpointState.GONE)
        return frozenset(
            delivery.endpoint_id for delivery, endpoint in self.attempts if endpoint in states
        )

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return self.sessions == self.discards == self.events == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """Use case: process the sessions, discards and events that are due, one after the other.

    One round processes at most 100 of each. A failure of one does not stop the others: an endpoint
    that does not take an event gets no other in this round, and a kind of work that cannot be read
    or written ends for this round. May run in several processes at once: a lease keeps each of them
    with one process.
    """

    settle: SettleSession
    discard_token: DiscardToken
    deliver_event: DeliverEvent
    clock: Clock

    def __call__(self, *, except_to: Collection[EndpointId] = ()) -> Round:
        """Run one round. Nothing is sent to the endpoints in `except_to`."""
        done = Round()
        for do_one in (self._settle_one, self._discard_one, partial(self._deliver_one, except_to)):
            try:
                for _ in range(MAX_PER_ROUND):
                    if not do_one(done):
                        break
            except ServiceUnavailable as unavailable:
                done.unavailable = done.unavailable or unavailable
        return done

    def _settle_one(self, done: Round) -> bool:
        """Settle the session that has been due the longest. Return whether there was one."""
        taken = self.settle.take()
        if taken is not None:
            with _set_aside(done.faults):
                session = self.settle(taken.token_id)
                done.silent += session is not None and self._is_silent(session)
            done.sessions += 1
        return taken is not None

    def _discard_one(self, done: Round) -> bool:
        taken = self.discard_token.take()
        if taken is not None:
            with _set_aside(done.faults):
                done.silent += self._is_silent(self.discard_token(taken))
            done.discards += 1
        return taken is not None

    def _deliver_one(self, except_to: Collection[EndpointId], done: Round) -> bool:
        taken = self.deliver_event.take(except_to={*except_to, *done.away})
        if taken is not None:
            with _set_aside(done.faults):
                attempt = self.deliver_event(taken)
                done.attempts += [attempt] if attempt is not None else []
            done.events += 1
        return taken is not None

    def _is_silent(self, asked: CardSession | Discard) -> bool:
        return is_alarming(asked.unanswered_since, self.clock.now())


@contextmanager
def _set_aside(faults: list[Exception]) -> Iterator[None]:
    """Collect an exception, so that one faulty session does not stop the others."""
    try:
        yield
    except ServiceUnavailable:
        raise
    except Exception as fault:  # noqa: BLE001 - a bug in an adapter may raise anything
        faults.append(fault)
