"""The types of identifiers, which are separate so that the type checker finds mix-ups.

UUIDs are stored as strings of 36 characters in lower case.
"""

from __future__ import annotations

import re
from base64 import b32encode
from hashlib import sha256
from typing import Final, NamedTuple, NewType

CenterId = NewType("CenterId", str)
GuestId = NewType("GuestId", str)
ProductId = NewType("ProductId", str)
TokenId = NewType("TokenId", str)
"""The token of a card-addition session."""
TOKEN_PREFIX_LENGTH: Final = 8
"""The number of characters of a token that are shown. They are enough to find the session, but not
enough to open the link of a session from an earlier release.
"""
LinkKey = NewType("LinkKey", str)
"""The secret of a session's link: 26 characters, `a` to `z` and `2` to `7`, which hold 128 bits."""
AccountId = NewType("AccountId", str)
"""The payment account identifier: the reference to a stored card."""
AgreementId = NewType("AgreementId", str)
CallerName = NewType("CallerName", str)
ProviderName = NewType("ProviderName", str)
"""The name of a payment service provider (PSP), such as `fake`."""
MerchantAccount = NewType("MerchantAccount", str)
"""The name of a merchant account at a PSP. The keys of the account are only in the settings."""
DEFAULT_MERCHANT_ACCOUNT: Final = MerchantAccount("default")
"""The merchant account of webhooks whose path does not name an account."""
GuestReference = NewType("GuestReference", str)
"""The PSP's own reference for a guest at one merchant account."""
CardToken = NewType("CardToken", str)
"""The PSP's token for a stored card, which a payment charges."""

EventId = NewType("EventId", str)
"""The id of an event: `evt_` and a UUID. Every delivery sends the id as `webhook-id`."""
EndpointId = NewType("EndpointId", str)
"""The id of an endpoint that receives events."""
WorkerId = NewType("WorkerId", str)
"""The id of one run of a background worker."""


class PspAccount(NamedTuple):
    """A merchant account at a PSP. Two PSPs may have accounts with the same name."""

    provider: ProviderName
    merchant_account: MerchantAccount


_PLAIN_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def plain_uuid(value: object) -> str | None:
    """Return `value` in lower case if it is a UUID in 36-character form, otherwise None.

    Other forms, such as those with braces, with `urn:uuid:` or without hyphens, are not accepted.
    """
    if isinstance(value, str) and _PLAIN_UUID.fullmatch(value):
        return value.lower()
    return None


def find_uuid(text: str) -> str | None:
    """Return the first UUID in 36-character form in a text, in lower case, or None."""
    found = _PLAIN_UUID.search(text)
    return found and found[0].lower()


_LINK_KEY = re.compile(r"[a-zA-Z2-7]{26}")
_ESCAPE = re.compile(r"%[0-9a-fA-F]{2}")


def link_key_from(secret: str) -> LinkKey:
    """Return the link key that is made from the first 128 bits of a secret."""
    return LinkKey(b32encode(sha256(secret.encode()).digest()[:16]).decode().rstrip("=").lower())


def find_link_key(text: str) -> LinkKey | None:
    """Return the first link key in a text, in lower case, or None.

    Only the form is checked: 26 characters in a row, each a letter or a digit from 2 to 7.
    """
    # Some programs escape text that is already escaped. The digits of an escape could be taken for
    # part of a key.
    found = _LINK_KEY.search(_ESCAPE.sub(" ", text))
    return found and LinkKey(found[0].lower())
