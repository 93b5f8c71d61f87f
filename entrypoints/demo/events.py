"""Verifies events as docs/events.md describes."""

from __future__ import annotations

import hmac
import json
import time
from base64 import b64decode, b64encode
from collections.abc import Mapping
from typing import Any, Final

TOLERANCE_SECONDS: Final = 300


def verified_event(secret: str, headers: Mapping[str, str], body: bytes) -> Any:  # any JSON
    """Return the event in a request, or raise ValueError unless its signature is right.

    `headers` have names in lower case, `body` is as it arrived. A shop of your own can call
    `Webhook(secret).verify(body, headers)` of the package `standardwebhooks` instead.
    """
    sent_at = headers.get("webhook-timestamp", "")
    if abs(time.time() - int(sent_at or 0)) > TOLERANCE_SECONDS:
        raise ValueError("sent too long ago")
    message = f"{headers.get('webhook-id')}.{sent_at}.".encode() + body
    digest = hmac.digest(b64decode(secret.removeprefix("whsec_")), message, "sha256")
    right = b"v1," + b64encode(digest)
    given = headers.get("webhook-signature", "").encode().split()
    if not any(hmac.compare_digest(right, signature) for signature in given):
        raise ValueError("no signature is right")
    return json.loads(body)
