"""The body of an event as it is sent. Its fields have the same names as in the API's responses."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta, Struct

from adapters.thread_safe_types import prepare
from domain.events.event import CardSummary, Event, EventType
from domain.events.send_test_event import NOBODY
from domain.identifiers import AgreementId, CenterId, EventId, GuestId, TokenId
from domain.psps.card import Funding


def _field(example: object, description: str = "", **schema: object) -> Meta:
    """Return an example, the description and the schema of a field for the OpenAPI document."""
    return Meta(
        description=description or None, extra_json_schema={**schema, "examples": [example]}
    )


_ACCOUNT_ID: Final = "607486b1-232f-43c7-906b-540453a04b21"
_Uuid = Annotated[str, Meta(extra_json_schema={"format": "uuid"})]


class EventCard(Struct, frozen=True, kw_only=True):
    """The card in an event, with the same fields as a card on file."""

    card_logo: Annotated[str, _field("visa")]
    last_four: Annotated[str, _field("4242")]
    expiry_on: Annotated[
        str, _field("09/31", "The month and year in which the card expires, MM/YY.")
    ]
    funding: Literal["credit", "debit", "prepaid"] | None
    issuer_country: Annotated[str | None, _field("DE")]
    wallet: Annotated[str | None, _field(None)]
    authenticated: bool | None


class EventData(Struct, frozen=True, kw_only=True):
    """What an event is about. Every event contains all fields. Fields without a value are null."""

    guest_id: Annotated[_Uuid, _field("0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11")]
    center_id: Annotated[_Uuid, _field("7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3")]
    token_id: Annotated[
        _Uuid,
        _field(
            "7aeda019-a8a1-4a72-88f9-f0ddfc7c339b",
            "The session that stored or renewed the card, or that ended without a card. For an "
            "imported card, no session has this id.",
        ),
    ]
    account_id: Annotated[_Uuid | None, _field(_ACCOUNT_ID)]
    existing_account_id: Annotated[
        _Uuid | None,
        _field(
            None, "The account that already has the card, if the session failed for that reason."
        ),
    ]
    status: Annotated[
        str, _field("active", "The status of the session or the card after the event.")
    ]
    reason: Annotated[
        str | None,
        _field(None, "The reason in one word, if the event can have more than one reason."),
    ]
    card: EventCard | None
    language: str | None
    reference: Annotated[
        str | None, _field(None, "The reference of the session, if a session caused the event.")
    ]
    live: Annotated[bool | None, _field(True, "Whether the PSP takes real cards; null if unknown.")]
    merged_guest_id: Annotated[
        _Uuid | None, _field(None, "The guest who was merged into guest_id, if that has happened.")
    ]
    agreement_id: Annotated[_Uuid | None, _field(None, "The agreement of the event.")]
    agreement_reference: Annotated[
        str | None, _field(None, "Your name for the booking of the agreement.")
    ]
    by: Annotated[
        str | None,
        _field(None, "`guest` if the guest caused the event on the guest's own page."),
    ]


class EventPayload(Struct, frozen=True, kw_only=True):
    """An event and its time. Future releases may add more fields and more types of events."""

    id: Annotated[
        str,
        _field(
            "evt_0e5a1c3e-5d0b-4c46-8f0c-0e8a7f1f3c55", "The id of the event, as in `webhook-id`."
        ),
    ]
    type: Annotated[str, _field(EventType.ACCOUNT_STORED.value, "The type of the event.")]
    timestamp: Annotated[
        datetime, _field("2026-11-20T12:00:00Z", "The time of the event.", format="date-time")
    ]
    data: EventData


prepare(EventPayload)


def encode(event: Event) -> bytes:
    """Return the body of an event as JSON. The same event always has the same bytes."""
    return msgspec.json.encode(_payload(event))


def _payload(event: Event) -> EventPayload:
    return EventPayload(
        id=event.event_id,
        type=event.type.value,
        timestamp=event.occurred_at,
        data=msgspec.convert(event, EventData, from_attributes=True),
    )


def examples() -> Mapping[EventType, EventPayload]:
    """Return an example of each type of event, for the OpenAPI document."""
    card = CardSummary(
        card_logo="visa",
        last_four="4242",
        expiry_on="09/31",
        funding=Funding.CREDIT,
        issuer_country="DE",
        authenticated=True,
    )
    of_card = {"account_id": _ACCOUNT_ID, "card": card}
    of_agreement = {
        "account_id": _ACCOUNT_ID,
        "agreement_id": AgreementId("5b1f0c9d-7e10-4a66-8a43-2f1b0c9d7e10"),
        "agreement_reference": "booking-1001",
    }
    ids = {
        "guest_id": GuestId("0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11"),
        "center_id": CenterId("7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3"),
        "token_id": TokenId("7aeda019-a8a1-4a72-88f9-f0ddfc7c339b"),
    }
    details: Mapping[EventType, Mapping[str, Any]] = {  # Any: fields of EventData
        EventType.ACCOUNT_STORED: {"status": "active", **of_card},
        EventType.ACCOUNT_RENEWED: {"status": "active", **of_card},
        EventType.ACCOUNT_UPDATED: {"status": "active", **of_card},
        EventType.ACCOUNT_REMOVED: {"status": "removed", **of_card},
        EventType.ACCOUNT_EXPIRING: {
            "status": "active",
            "reason": "expires_in_30_days",
            **of_card,
        },
        EventType.SESSION_UNOPENED: {"status": "open"},
        EventType.SESSION_CARD_DECLINED: {"status": "open", "reason": "insufficient_funds"},
        EventType.ACCOUNT_DEFAULT: {"status": "active", "by": "guest", **of_card},
        EventType.CONSENT_WITHDRAWN: {"status": "active", "by": "guest", **of_card},
        EventType.SESSION_FAILED: {
            "status": "failed",
            "reason": "payment_method_already_exists",
            "existing_account_id": _ACCOUNT_ID,
        },
        EventType.SESSION_EXPIRED: {"status": "expired", "reason": "not_finished"},
        EventType.GUEST_MERGED: {
            "status": "merged",
            "live": None,
            "merged_guest_id": GuestId("6a1f1d4e-2f0b-4d7a-9a3e-5b8f5f0f7c11"),
            "center_id": CenterId(NOBODY),
            "token_id": TokenId(NOBODY),
        },
        EventType.AGREEMENT_ADDED: {"status": "open", **of_agreement},
        EventType.AGREEMENT_ENDED: {"status": "ended", "reason": "cancelled", **of_agreement},
        EventType.TEST: {"status": "test", "live": None, **dict.fromkeys(ids, NOBODY)},
    }
    return {
        event_type: _payload(
            Event(
                event_id=EventId("evt_0e5a1c3e-5d0b-4c46-8f0c-0e8a7f1f3c55"),
                type=event_type,
                occurred_at=datetime(2026, 11, 20, 12, tzinfo=UTC),
                **{"live": True, **ids, **details[event_type]},
            )
        )
        for event_type in EventType
    }
