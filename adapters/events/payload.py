"""The body of an event, with the field names that the responses of the API have."""

from __future__ import annotations

from datetime import datetime

import msgspec
from msgspec import Struct

from domain.events import CardSummary, Event


class EventCard(Struct, frozen=True, kw_only=True):
    """What an event says of a card."""

    card_logo: str
    last_four: str
    expiry_on: str

    @classmethod
    def of(cls, card: CardSummary) -> EventCard:
        """Return what an event says of this card."""
        return cls(card_logo=card.card_logo, last_four=card.last_four, expiry_on=card.expiry_on)


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


def encode(event: Event) -> bytes:
    """Return the body of an event as JSON: the same bytes each time."""
    payload = EventPayload(
        type=event.type.value,
        timestamp=event.occurred_at,
        data=EventData(
            guest_id=event.guest_id,
            center_id=event.center_id,
            token_id=event.token_id,
            account_id=event.account_id,
            status=event.status,
            reason=event.reason,
            card=EventCard.of(event.card) if event.card else None,
        ),
    )
    return msgspec.json.encode(payload)
