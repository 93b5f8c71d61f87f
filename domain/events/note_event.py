"""Note an event: store it for the list of events, with a delivery for each subscribed endpoint.

The event and its deliveries are stored in the same commit as the change that the event reports.
Therefore no event is lost, and no event reports a change that was not committed.
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
    """Step: store an event, and a delivery for each endpoint that subscribes to it.

    The current trace is stored with the event. The caller commits the unit.
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
