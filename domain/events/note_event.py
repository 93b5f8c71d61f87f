"""Note what has happened to a card or a session, for the endpoints that take such events.

The deliveries are stored in the commit that decides, so no event is lost, and none is sent of what
was not committed. Where no endpoint takes the event, nothing is stored.
"""

from __future__ import annotations

from domain.events.event import Event, EventDelivery
from domain.identifiers import EventId
from domain.outside import Ids
from domain.storage import WriteUnit


def new_event_id(ids: Ids) -> EventId:
    """Return the id of a new event."""
    return EventId(f"evt_{ids.uuid()}")


def note_event(unit: WriteUnit, event: Event) -> None:
    """Note an event for each endpoint that takes it. The caller commits."""
    for endpoint in unit.event_endpoints.all():
        if endpoint.takes(event):
            unit.event_deliveries.add(
                EventDelivery(
                    event=event, endpoint_id=endpoint.endpoint_id, due_at=event.occurred_at
                )
            )
