"""Process the sessions, discards and events that are due, as `cardonfile reconcile` does.

`serve` and `work` do the same with several threads, in `entrypoints/reconciler.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from domain.card_sessions import CardSession
from domain.deliver_event import ENDPOINT_IS_OFF, DeliverEvent
from domain.discard_tokens import DiscardToken
from domain.discards import Discard
from domain.errors import ServiceUnavailable
from domain.events import DeliveryStatus, EventDelivery
from domain.identifiers import EndpointId
from domain.ports import Clock
from domain.retries import is_alarming
from domain.settle_session import SettleSession

MAX_PER_ROUND: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Round:
    """What one round of reconciling did.

    `sessions`, `discards` and `events` count what was processed. `faults` holds the exceptions of
    single ones, which are tried again later. `silent` counts those whose PSP has not responded for
    24 hours. `attempted` holds the deliveries of events after their attempts.
    """

    sessions: int = 0
    discards: int = 0
    events: int = 0
    faults: Sequence[Exception] = ()
    silent: int = 0
    attempted: Sequence[EventDelivery] = ()

    @property
    def away(self) -> frozenset[EndpointId]:
        """The endpoints that did not take an event."""
        return frozenset(each.endpoint_id for each in self.attempted if _is_away(each))

    @property
    def is_idle(self) -> bool:
        """Whether there was nothing to do."""
        return self.sessions == self.discards == self.events == 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reconcile:
    """Use case: process the sessions, discards and events that are due, one after the other.

    One round processes at most 100 of each. A failure of one does not stop the others: an endpoint
    that does not take an event gets no other in this round. May run in several processes at once: a
    lease keeps each of them with one process. Raises ServiceUnavailable.
    """

    settle: SettleSession
    discard_token: DiscardToken
    deliver_event: DeliverEvent
    clock: Clock

    def __call__(
        self,
        *,
        except_to: Collection[EndpointId] = (),
        is_stopping: Callable[[], bool] = lambda: False,
    ) -> Round:
        """Run one round. `is_stopping` is called before each item, and ends the round early.

        Nothing is sent to the endpoints in `except_to`.
        """
        faults: list[Exception] = []
        attempted: list[EventDelivery] = []
        away = set(except_to)
        sessions = discards = events = silent = 0
        for _ in range(MAX_PER_ROUND):
            taken = None if is_stopping() else self.settle.take()
            discard = None if is_stopping() else self.discard_token.take()
            delivery = None if is_stopping() else self.deliver_event.take(except_to=away)
            if taken is None and discard is None and delivery is None:
                break
            if taken is not None:
                sessions += 1
                with _set_aside(faults):
                    session = self.settle(taken.token_id)
                    silent += session is not None and self._is_silent(session)
            if discard is not None:
                discards += 1
                with _set_aside(faults):
                    silent += self._is_silent(self.discard_token(discard))
            if delivery is not None:
                events += 1
                with _set_aside(faults):
                    tried = self.deliver_event(delivery)
                    if tried is not None:
                        attempted.append(tried)
                    if tried is not None and _is_away(tried):
                        away.add(tried.endpoint_id)
        return Round(
            sessions=sessions,
            discards=discards,
            events=events,
            faults=faults,
            silent=silent,
            attempted=attempted,
        )

    def _is_silent(self, asked: CardSession | Discard) -> bool:
        return is_alarming(asked.unanswered_since, self.clock.now())


def _is_away(attempted: EventDelivery) -> bool:
    is_delivered = attempted.status is DeliveryStatus.DELIVERED
    # Nothing was sent to an endpoint that is off, so it takes no time.
    return not is_delivered and attempted.last_result != ENDPOINT_IS_OFF


@contextmanager
def _set_aside(faults: list[Exception]) -> Iterator[None]:
    """Collect an exception, so that one faulty session does not stop the others."""
    try:
        yield
    except ServiceUnavailable:
        raise
    except Exception as fault:  # noqa: BLE001 - a bug in an adapter may raise anything
        faults.append(fault)
