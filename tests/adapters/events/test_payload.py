from __future__ import annotations

from datetime import timedelta

import msgspec

from adapters.events.payload import encode
from adapters.http.cards import StoredCard
from domain.events.event import EventType
from tests.adapters.events.conftest import an_event


def test_the_payload_of_an_event_says_what_happened_to_which_card() -> None:
    assert msgspec.json.decode(
        encode(an_event(reason="renewed", language="de", reference="order-1", live=True))
    ) == {
        "id": an_event().event_id,
        "type": "account.stored",
        "timestamp": "2026-11-20T12:00:00Z",
        "data": {
            "guest_id": "0b54f1d7-63c7-4a34-9c5c-0b6a2f1f2f11",
            "center_id": "7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c3",
            "token_id": "7aeda019-a8a1-4a72-88f9-f0ddfc7c339b",
            "account_id": "607486b1-232f-43c7-906b-540453a04b21",
            "existing_account_id": None,
            "status": "active",
            "reason": "renewed",
            "card": {
                "card_logo": "visa",
                "last_four": "4242",
                "expiry_on": "09/31",
                "funding": None,
                "issuer_country": None,
                "wallet": None,
                "authenticated": None,
            },
            "language": "de",
            "reference": "order-1",
            "live": True,
            "merged_guest_id": None,
            "agreement_id": None,
            "agreement_reference": None,
            "by": None,
        },
    }


def test_the_payload_of_every_event_type_has_all_fields() -> None:
    for type_ in EventType:
        body = msgspec.json.decode(encode(an_event(type=type_, account_id=None, card=None)))

        assert body["type"] == type_
        assert {field for field, value in body["data"].items() if value is None} == {
            *("account_id", "existing_account_id", "reason", "card"),
            *("language", "reference", "live", "merged_guest_id"),
            *("agreement_id", "agreement_reference", "by"),
        }


def test_the_timestamp_of_an_event_keeps_fractions_of_a_second() -> None:
    event = an_event()
    later = an_event(occurred_at=event.occurred_at + timedelta(microseconds=1))

    assert msgspec.json.decode(encode(later))["timestamp"] == "2026-11-20T12:00:00.000001Z"


def test_the_card_in_an_event_has_the_same_field_names_as_in_the_api() -> None:
    card = msgspec.json.decode(encode(an_event()))["data"]["card"]

    assert card.keys() <= set(StoredCard.__struct_fields__)
