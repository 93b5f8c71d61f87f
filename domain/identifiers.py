"""Identifiers, each a type of its own so that no two can be mixed up.

All UUIDs are kept as text in their plain 36-character form, in lower case.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple, NewType

CenterId = NewType("CenterId", str)
GuestId = NewType("GuestId", str)
ProductId = NewType("ProductId", str)
TokenId = NewType("TokenId", str)
"""The token of a card-addition session."""
AccountId = NewType("AccountId", str)
"""The payment account identifier: the reference under which a stored card is used."""
CallerName = NewType("CallerName", str)
ProviderName = NewType("ProviderName", str)
"""The name of a payment service provider (PSP), such as `fake`."""
MerchantAccount = NewType("MerchantAccount", str)
"""The name of a merchant account at a PSP; its keys live in the settings, never here."""
DEFAULT_MERCHANT_ACCOUNT: Final = MerchantAccount("default")
"""The one whose webhooks come to the address that names none."""
GuestReference = NewType("GuestReference", str)
"""The PSP's own reference for a guest at one merchant account."""
CardToken = NewType("CardToken", str)
"""The PSP's token for a stored card: what a payment operation charges."""


class PspAccount(NamedTuple):
    """A merchant account at a PSP: two PSPs may have accounts of the same name."""

    provider: ProviderName
    merchant_account: MerchantAccount


_PLAIN_UUID = re.compile(r"[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")


def plain_uuid(value: object) -> str | None:
    """Give `value` as a lower-case UUID, or None when it is not one in 36-character form.

    Braces, `urn:uuid:`, missing hyphens and other scripts' digits are refused.
    """
    if isinstance(value, str) and _PLAIN_UUID.fullmatch(value):
        return value.lower()
    return None
