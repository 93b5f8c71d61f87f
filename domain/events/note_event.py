"""Note an event about a card or a session, for readers and for the endpoints that subscribe to it.

The event and its deliveries are stored in the commit that causes the event. So no event is lost,
and no event tells of something that was not committed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from domain.centers.configure_payments import LoadedPsp
from domain.events.event import Event, EventDelivery
from domain.identifiers import EventId, ProviderName
from domain.outside import Ids, Traces
from domain.storage import WriteUnit


def new_event_id(ids: Ids) -> EventId:
    """Return the id of a new event."""
    return EventId(f"evt_{ids.uuid()}")


@dataclass(frozen=True, slots=True, kw_only=True)
class NoteEvent:
    """Step: note an event, and a delivery for each endpoint that takes it. The caller commits.

    The event belongs to the trace of the work that caused it.
    """

    ids: Ids
    traces: Traces
    psps: Mapping[ProviderName, LoadedPsp]

    def __call__(self, unit: WriteUnit, event: Event) -> None:
        event = replace(event, trace=self.traces.current())
        unit.events.add(event)
        for endpoint in unit.event_endpoints.all():
            if endpoint.takes(event):
                unit.event_deliveries.add(
                    EventDelivery(
                        event=event, endpoint_id=endpoint.endpoint_id, due_at=event.occurred_at
                    )
                )
