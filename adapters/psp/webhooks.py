"""Webhooks: an HMAC over their raw bytes, the time at which they were signed, and what they hold."""

from __future__ import annotations

import base64
import hmac
import re
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final, Literal, TypeAlias, TypeVar

import msgspec

from adapters.psp.settings import SettingsError
from domain.ports import WebhookRejected

TOLERANCE: Final = timedelta(seconds=300)
"""How far a signed time may be from ours, before or after."""

_UNIX_SECONDS: Final = re.compile(r"[0-9]{1,12}")

Encoding: TypeAlias = Literal["hex", "base64"]


def require_secrets(secrets: Iterable[str]) -> None:
    """Raise SettingsError for no secret, and for a blank one: anybody could sign with it."""
    given = tuple(secrets)
    if not given or not all(map(str.strip, given)):
        raise SettingsError("a webhook secret is empty")


def sign(
    message: bytes,
    secret: str | bytes,
    *,
    algorithm: str = "sha256",
    encoding: Encoding = "hex",
) -> str:
    """Give the HMAC of a message. `algorithm` is one that hashlib knows. Hex is in lower case."""
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
    """Tell whether one of the signatures is one of our secrets'; compared in constant time.

    There are several secrets while one replaces another. A signature may be any text: headers hold
    what anybody sent, and bytes are compared, for `compare_digest` refuses text beyond ASCII.
    """
    expected = [
        sign(message, secret, algorithm=algorithm, encoding=encoding).encode()
        for secret in secrets
        if secret
    ]
    given = [signature.encode(errors="surrogatepass") for signature in signatures]
    return any(hmac.compare_digest(ours, theirs) for ours in expected for theirs in given)


def is_recent(signed_at: int | str, now: datetime) -> bool:
    """Tell whether a time, in Unix seconds, is at most 300 seconds before or after now.

    Both are taken in whole seconds, as the signed time is. Text that is no such number is not.
    """
    if isinstance(signed_at, str):
        if not _UNIX_SECONDS.fullmatch(signed_at):
            return False
        signed_at = int(signed_at)
    return abs(int(now.timestamp()) - signed_at) <= TOLERANCE.total_seconds()


T = TypeVar("T")


def decode_webhook(decoder: msgspec.json.Decoder[T], body: bytes | msgspec.Raw) -> T:
    """Give what the decoder makes of a body, or of a part of one. Raises WebhookRejected.

    Make the decoder at import: msgspec crashes when several threads are the first to read a type
    (0.22).
    """
    try:
        return decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        # From None: the cause quotes the body.
        raise WebhookRejected("the body is no event that is known") from None
