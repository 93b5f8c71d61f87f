"""Verify webhooks: check the signature of the raw bytes and its time, and decode the body."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from adapters.psp.settings import PspSettingsError
from domain.psps.payment_provider import WebhookRejected

TOLERANCE: Final = timedelta(seconds=300)
"""How far the signing time may differ from the current time, before or after."""

_UNIX_SECONDS: Final = re.compile(r"[0-9]{1,12}")

Encoding: TypeAlias = Literal["hex", "base64"]


def require_secrets(secrets: Iterable[str]) -> None:
    """Raise PspSettingsError if there is no secret, or a blank secret.

    Anybody could sign with a blank secret.
    """
    given = tuple(secrets)
    if not given or not all(map(str.strip, given)):
        raise PspSettingsError("a webhook secret is empty")


def sign(
    message: bytes,
    secret: str | bytes,
    *,
    algorithm: str = "sha256",
    encoding: Encoding = "hex",
) -> str:
    """Return the HMAC of a message.

    `algorithm` is a name from hashlib. Hexadecimal digits are in lower case.
    """
    key = secret.encode() if isinstance(secret, str) else secret
    mac = hmac.digest(key, message, algorithm)
    return mac.hex() if encoding == "hex" else base64.b64encode(mac).decode()


def is_signed(
    message: bytes,
    signatures: Iterable[str],
    secrets: Iterable[str | bytes],
    *,
    algorithm: str = "sha256",
    encoding: Encoding = "hex",
) -> bool:
    """Return whether any of the signatures was made with any of the secrets.

    There are several secrets while one of them is being replaced. A signature may be any text,
    because anybody can send headers. The comparison takes constant time.
    """
    expected = [
        sign(message, secret, algorithm=algorithm, encoding=encoding).encode()
        for secret in secrets
        if secret
    ]
    # Bytes are compared, because compare_digest() raises TypeError for text that is not ASCII.
    given = [signature.encode(errors="surrogatepass") for signature in signatures]
    return any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in given)


def is_recent(signed_at: int | str, now: datetime) -> bool:
    """Return whether a time in Unix seconds is at most 300 seconds before or after `now`.

    Fractions of a second are ignored. Return False for a text that is not a number.
    """
    if isinstance(signed_at, str):
        if not _UNIX_SECONDS.fullmatch(signed_at):
            return False
        signed_at = int(signed_at)
    return abs(int(now.timestamp()) - signed_at) <= TOLERANCE.total_seconds()


T = TypeVar("T")


def decode_webhook(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Decode the body of a webhook, or a part of it. Raises WebhookRejected if that fails.

    Create the decoder once, at import. `adapters/thread_safe_types.py` explains why.
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # `from None`, because the cause quotes the body.
        raise WebhookRejected("the body is not a known event") from None
