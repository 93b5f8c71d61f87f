"""The body of an event, with the field names that the responses of the API have."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from adapters.first_reads import prepare
from domain.events.event import Event


class EventCard(Struct, frozen=True, kw_only=True):
    """What an event says of a card."""

    card_logo: str
    last_four: str
    expiry_on: str


class EventData(Struct, frozen=True, kw_only=True):
    """What an event is about. Every type of event has all fields; what there is not, is null."""

    guest_id: str
    center_id: str
    token_id: str
    account_id: str | None
    status: str
    reason: str | None
    card: EventCard | None


class EventPayload(Struct, frozen=True, kw_only=True):
    """The body: what has happened, and when."""

    type: str
    timestamp: datetime
    data: EventData


prepare(EventPayload)


def encode(event: Event) -> bytes:
    """Return the body of an event as JSON: the same bytes each time."""
    payload = EventPayload(
        type=event.type.value,
        timestamp=event.occurred_at,
        data=msgspec.convert(event, EventData, from_attributes=True),
    )
    return msgspec.json.encode(payload)
