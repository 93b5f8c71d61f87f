"""Change the event types to which an endpoint subscribes."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.events.event import EventEndpoint, parse_event_types
from domain.events.find_endpoint import existing_endpoint
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateEventEndpoint:
    """Use case: change the types of the events that an endpoint receives from now on.

    The endpoint's secret, centers and existing deliveries do not change. May be called more than
    once. Raises EndpointNotFound or InvalidField.
    """

    storage: Storage
    note_act: NoteAct

    def __call__(self, endpoint_id: str, *, types: Collection[str]) -> EventEndpoint:
        event_types = parse_event_types(types)

        def update(unit: WriteUnit) -> EventEndpoint:
            before = existing_endpoint(unit, endpoint_id)
            endpoint = replace(before, types=event_types)
            unit.event_endpoints.update(endpoint)
            details = {"before": ",".join(before.types), "types": ",".join(event_types)}
            self.note_act(unit, Action.ENDPOINT_UPDATED, endpoint.endpoint_id, details)
            unit.commit()
            return endpoint

        return self.storage.transact(update)
