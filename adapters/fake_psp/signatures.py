"""The signatures of the fake PSP's webhooks.

A signature is `t=<time>,v1=<HMAC>`. The time is in Unix seconds. The HMAC-SHA256 is computed over
the time, a full stop, and the body.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime
from typing import Final

from adapters.psp import webhooks

HEADER: Final = "fake-psp-signature"

_FORM = re.compile(r"t=([0-9]{1,12}),v1=([0-9a-f]{64})")


def sign(body: bytes, *, secret: str, now: datetime) -> str:
    """Return the value of the signature header for a body that is sent at `now`."""
    timestamp = str(int(now.timestamp()))
    return f"t={timestamp},v1={webhooks.sign(_signed(body, timestamp), secret)}"


def is_signed(body: bytes, signature: str, *, secrets: Iterable[str], now: datetime) -> bool:
    """Return whether `signature` is a signature of the body made with one of the secrets.

    The time in the signature may differ from `now` by at most 300 seconds.
    """
    match = _FORM.fullmatch(signature)
    if match is None:
        return False
    timestamp, mac = match.groups()
    is_genuine = webhooks.is_signed(_signed(body, timestamp), [mac], secrets)
    return is_genuine and webhooks.is_recent(int(timestamp), now)


def _signed(body: bytes, timestamp: str) -> bytes:
    return f"{timestamp}.".encode() + body
