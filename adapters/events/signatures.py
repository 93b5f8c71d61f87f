"""The headers with which a receiver verifies an event (Standard Webhooks, "Signature scheme")."""

from __future__ import annotations

import hmac
from base64 import b64decode, b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime

from domain.identifiers import EventId


def signed_headers(
    event_id: EventId, body: bytes, secrets: Iterable[str], now: datetime
) -> Mapping[str, str]:
    """Return the headers with the event's id, the time, and one signature for each secret.

    A secret is `whsec_` followed by Base64.
    """
    seconds = str(int(now.timestamp()))
    signed = f"{event_id}.{seconds}.".encode() + body
    return {
        "webhook-id": event_id,
        "webhook-timestamp": seconds,
        "webhook-signature": " ".join(f"v1,{_signature(signed, secret)}" for secret in secrets),
    }


def _signature(signed: bytes, secret: str) -> str:
    key = b64decode(secret.removeprefix("whsec_"))
    return b64encode(hmac.digest(key, signed, "sha256")).decode()
