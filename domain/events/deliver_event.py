"""Deliver due events to their endpoints."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final, NamedTuple

from domain.events.event import GONE, DueDelivery, EventDelivery, EventEndpoint
from domain.events.event_sender import EventNotSent, EventSender
from domain.identifiers import EndpointId
from domain.outside import Clock
from domain.retries import LEASE
from domain.storage import RecordUnreadable, Storage, UnitOfWork, WriteUnit, take_due

ENDPOINT_IS_OFF: Final = "endpoint disabled or removed"
"""The result of a delivery if its endpoint was disabled or removed during the request."""
ENDPOINT_IS_UNREADABLE: Final = "endpoint stored by another release"
"""The result of a delivery to an endpoint that this release cannot decode."""


class EndpointState(Enum):
    """The state of an endpoint after an attempt.

    Nothing is sent to an endpoint that is `OFF`, because it was disabled or removed.
    """

    TAKES_EVENTS = auto()
    AWAY = auto()
    GONE = auto()
    OFF = auto()


class Attempt(NamedTuple):
    """A delivery and the state of its endpoint after an attempt."""

    delivery: EventDelivery
    endpoint: EndpointState


@dataclass(frozen=True, slots=True, kw_only=True)
class DeliverEvent:
    """Use case: make one attempt to deliver a leased event. Each event is delivered at least once.

    A 2xx response means that the endpoint accepted the event. After a 410 response, the endpoint is
    disabled and does not receive further events. After any other response or failure, the delivery
    is retried. Ten attempts are made within three days.
    """

    storage: Storage
    sender: EventSender
    clock: Clock

    def take(self, *, except_to: Collection[EndpointId] = ()) -> DueDelivery | None:
        """Lease the delivery that has been due for the longest time, and return it.

        Return None if no delivery is due; nothing is written then. The lease lasts one minute.
        Events about expiring cards come last. Deliveries to the endpoints in `except_to` are left
        out.
        """
        now = self.clock.now()
        return take_due(
            self.storage,
            lambda unit: unit.event_deliveries.is_any_due(now, except_to=except_to),
            lambda unit: unit.event_deliveries.take_due(
                now, until=now + LEASE, except_to=except_to
            ),
        )

    def __call__(self, taken: DueDelivery) -> Attempt | None:
        """Send the event, and return the attempt.

        Return None if another process has taken over the delivery.
        """
        with self.storage.read() as unit:
            delivery = _current_delivery(unit, taken)
            if delivery is None:
                return None
            try:
                endpoint, is_readable = unit.event_endpoints.get(taken.endpoint_id), True
            except RecordUnreadable:
                endpoint, is_readable = None, False
        if is_readable:
            attempt = self._attempt(delivery, endpoint)
        else:
            refused = delivery.refused(ENDPOINT_IS_UNREADABLE, self.clock.now())
            attempt = Attempt(refused, EndpointState.AWAY)

        def keep(unit: WriteUnit) -> None:
            if attempt.endpoint is EndpointState.GONE:
                self._disable(unit, taken.endpoint_id)
            if _current_delivery(unit, taken):
                unit.event_deliveries.update(attempt.delivery)
            unit.commit()

        self.storage.transact(keep)
        return attempt

    def _attempt(self, delivery: EventDelivery, endpoint: EventEndpoint | None) -> Attempt:
        if endpoint is None or not endpoint.is_active:
            off = delivery.failed_for_good(ENDPOINT_IS_OFF, self.clock.now())
            return Attempt(off, EndpointState.OFF)
        try:
            status = self.sender.send(delivery.event, endpoint, now=self.clock.now())
        except EventNotSent as failure:
            refused = delivery.refused(str(failure), self.clock.now())
            return Attempt(refused, EndpointState.AWAY)
        now, result = self.clock.now(), str(status)
        if status // 100 == 2:
            return Attempt(delivery.delivered(result, now), EndpointState.TAKES_EVENTS)
        if status == GONE:
            return Attempt(delivery.failed_for_good(result, now), EndpointState.GONE)
        return Attempt(delivery.refused(result, now), EndpointState.AWAY)

    def _disable(self, unit: WriteUnit, endpoint_id: EndpointId) -> None:
        endpoint = unit.event_endpoints.get(endpoint_id)
        if endpoint is not None:
            unit.event_endpoints.update(replace(endpoint, disabled_at=self.clock.now()))


def _current_delivery(unit: UnitOfWork, taken: DueDelivery) -> EventDelivery | None:
    """Return the delivery, or None if another process has taken it over or it was replayed."""
    delivery = unit.event_deliveries.get(taken.event_id, taken.endpoint_id)
    return delivery if delivery is not None and delivery.due_at == taken.due_at else None
