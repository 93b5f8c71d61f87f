"""Replay events: send stored events again."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Final, NamedTuple

from domain.audit.entry import Action, Details
from domain.audit.note_act import NoteAct
from domain.errors import EventNotFound
from domain.events.event import EventDelivery
from domain.events.find_endpoint import existing_endpoint
from domain.identifiers import EndpointId, EventId, plain_uuid
from domain.outside import Clock
from domain.storage import AlreadyStored, RecordUnreadable, Storage, WriteUnit

EVENTS_AT_ONCE: Final = 100
"""The number of events that one unit of work replays. It is small, so that requests do not wait
long for the unit.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEvent:
    """Use case: send an event again to every endpoint that now subscribes to its type.

    The endpoints may differ from those that first received the event. The event keeps its id. Each
    call sends the event once more. Raises EventNotFound if no delivery of the event is stored, for
    example because no endpoint subscribed to its type when the event occurred.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, event_id: str) -> int:
        """Make the deliveries of the event due at once, and return the number of deliveries."""
        uuid = plain_uuid(event_id.removeprefix("evt_"))
        if uuid is None:
            raise EventNotFound
        known_id, now = EventId(f"evt_{uuid}"), self.clock.now()

        def replay(unit: WriteUnit) -> int:
            count = _replay(unit, known_id, now=now)
            if count is None:
                raise EventNotFound
            self.note_act(unit, Action.EVENT_REPLAYED, known_id, {"endpoints": count})
            unit.commit()
            return count

        return self.storage.transact(replay)


class Replayed(NamedTuple):
    """How many events were to be replayed, and how many of their deliveries became due."""

    events: int
    deliveries: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayEventsSince:
    """Use case: resend all events since a given time, to one or all subscribed endpoints.

    Events without a stored delivery are left out. An endpoint also gets events that occurred before
    it was added. The work is done in several units of work, so only some of the events may have
    been resent when an exception is raised. The call may then be repeated. Raises EndpointNotFound.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, since: datetime, *, endpoint_id: str | None = None) -> Replayed:
        """Make all deliveries of the events since `since` due now.

        Return the number of events and the number of deliveries. If `endpoint_id` is given, only
        the deliveries to that endpoint become due.
        """
        now = self.clock.now()
        with self.storage.read() as unit:
            only = None if endpoint_id is None else existing_endpoint(unit, endpoint_id).endpoint_id
            event_ids = unit.event_deliveries.events_since(since)

        def note(unit: WriteUnit) -> None:
            details: Details = {
                "since": since.isoformat(timespec="seconds"),
                "events": len(event_ids),
            }
            self.note_act(unit, Action.EVENTS_REPLAYED, only or "all endpoints", details)
            unit.commit()

        def replay(some: Sequence[EventId], unit: WriteUnit) -> int:
            count = 0
            for event_id in some:
                # An event that cannot be decoded, or that was deleted meanwhile, does not block the
                # other events.
                with suppress(RecordUnreadable):
                    count += _replay(unit, event_id, now=now, only=only) or 0
            unit.commit()
            return count

        self.storage.transact(note)
        deliveries = sum(
            self.storage.transact(partial(replay, event_ids[at : at + EVENTS_AT_ONCE]))
            for at in range(0, len(event_ids), EVENTS_AT_ONCE)
        )
        return Replayed(len(event_ids), deliveries)


def _replay(
    unit: WriteUnit, event_id: EventId, *, now: datetime, only: EndpointId | None = None
) -> int | None:
    """Make the deliveries of an event to its present subscribers due, and return their number.

    Missing deliveries are added. If `only` is given, only the delivery to that endpoint becomes
    due. If no delivery of the event is stored, to whatever endpoint, change nothing and return
    None.
    """
    known = {delivery.endpoint_id: delivery for delivery in unit.event_deliveries.of(event_id)}
    if not known:
        return None
    event = next(iter(known.values())).event
    takers = [
        endpoint.endpoint_id
        for endpoint in unit.event_endpoints.all()
        if endpoint.takes(event) and only in (None, endpoint.endpoint_id)
    ]
    for endpoint_id in takers:
        delivery = known.get(endpoint_id)
        if delivery is not None:
            unit.event_deliveries.update(delivery.replayed(now))
            continue
        # Another replay may add the delivery at the same time. The delivery is due in that case
        # too.
        with suppress(AlreadyStored):
            unit.event_deliveries.add(
                EventDelivery(event=event, endpoint_id=endpoint_id, due_at=now)
            )
    return len(takers)
