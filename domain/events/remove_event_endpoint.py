"""Remove an endpoint, or change the secret that signs its events."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.events.event import EventEndpoint
from domain.events.find_endpoint import existing_endpoint
from domain.outside import Clock, Ids
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveEventEndpoint:
    """Use case: remove an endpoint. Nothing more is sent to it, not even events that are due.

    A request that is being sent is completed. The deliveries stay stored. Raises EndpointNotFound.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, endpoint_id: str) -> EventEndpoint:
        """Mark the endpoint as removed, and return it."""
        now = self.clock.now()

        def remove(unit: WriteUnit) -> EventEndpoint:
            endpoint = replace(existing_endpoint(unit, endpoint_id), removed_at=now)
            unit.event_endpoints.update(endpoint)
            self.note_act(unit, Action.ENDPOINT_REMOVED, endpoint.endpoint_id)
            unit.commit()
            return endpoint

        return self.storage.transact(remove)


@dataclass(frozen=True, slots=True, kw_only=True)
class RollEventSecret:
    """Use case: give an endpoint a new secret. For 24 hours, events are signed with both secrets.

    If another call follows within that time, the older of the two secrets ends at once. Raises
    EndpointNotFound.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    note_act: NoteAct

    def __call__(self, endpoint_id: str) -> EventEndpoint:
        """Store a new secret, and return the endpoint with both secrets."""
        secret, now = self.ids.secret(), self.clock.now()

        def roll(unit: WriteUnit) -> EventEndpoint:
            endpoint = existing_endpoint(unit, endpoint_id)
            endpoint = replace(endpoint, secrets=endpoint.secrets.rolled(secret, now))
            unit.event_endpoints.update(endpoint)
            self.note_act(unit, Action.SECRET_ROLLED, endpoint.endpoint_id)
            unit.commit()
            return endpoint

        return self.storage.transact(roll)
