"""How the fake PSP signs its webhooks: `t=<Unix seconds>,v1=<HMAC-SHA256 of "t." and the body>`."""

from __future__ import annotations

import hashlib
import hmac
import re
from datetime import datetime, timedelta
from typing import Final

HEADER: Final = "fake-psp-signature"
TOLERANCE: Final = timedelta(seconds=300)
"""How far the signed time may be from ours, before or after."""

_FORM = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


def sign(body: bytes, *, secret: str, now: datetime) -> str:
    """Give the value of the signature header for a body that is sent now."""
    timestamp = str(int(now.timestamp()))
    return f"t={timestamp},v1={_mac(body, timestamp, secret)}"


def is_signed(body: bytes, signature: str, *, secret: str, now: datetime) -> bool:
    """Tell whether whoever knows the secret signed this body within 300 seconds of now."""
    match = _FORM.fullmatch(signature)
    if match is None:
        return False
    timestamp, mac = match.groups()
    # Both in whole seconds, as the signed time is.
    fresh = abs(int(now.timestamp()) - int(timestamp)) <= TOLERANCE.total_seconds()
    return hmac.compare_digest(mac, _mac(body, timestamp, secret)) and fresh


def _mac(body: bytes, timestamp: str, secret: str) -> str:
    return hmac.new(secret.encode(), f"{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
