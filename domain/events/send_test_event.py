"""Send a test event without content, to check whether an endpoint receives events."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.events.event import Event, EventType
from domain.events.event_sender import EventSender
from domain.events.find_endpoint import existing_endpoint
from domain.events.note_event import new_event_id
from domain.identifiers import CenterId, GuestId, TokenId
from domain.outside import Clock, Ids
from domain.storage import Storage

NOBODY: Final = "00000000-0000-4000-8000-000000000000"


@dataclass(frozen=True, slots=True, kw_only=True)
class SendTestEvent:
    """Use case: send one `test` event to an endpoint, and return the HTTP status of the response.

    The event is signed like any other event. It is not stored, and not retried. Raises
    EndpointNotFound. Raises EventNotSent if there is no valid response, or if the endpoint's
    address is not allowed; the text of the exception is the reason.
    """

    storage: Storage
    sender: EventSender
    clock: Clock
    ids: Ids

    def __call__(self, endpoint_id: str) -> int:
        with self.storage.read() as unit:
            endpoint = existing_endpoint(unit, endpoint_id)
        now = self.clock.now()
        event = Event(
            event_id=new_event_id(self.ids),
            type=EventType.TEST,
            occurred_at=now,
            guest_id=GuestId(NOBODY),
            center_id=CenterId(NOBODY),
            token_id=TokenId(NOBODY),
            status="test",
        )
        return self.sender.send(event, endpoint, now=now)
