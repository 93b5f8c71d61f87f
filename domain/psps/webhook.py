"""A PSP's webhook, and its subject."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from domain.identifiers import CardToken, GuestReference, MerchantAccount, TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """A webhook as received: header names in lower case, and the raw bytes of the body.

    `merchant_account` is the account named in the request path, if any.
    """

    headers: Mapping[str, str]
    body: bytes
    merchant_account: MerchantAccount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookNotice:
    """The subject of a webhook.

    The subject is a session or cards on file. `token_id` or the page's reference names a session.
    `card_token` names one card, and `guest_reference` names all cards of a guest; these cards are
    then read again.

    If the PSP does not sign webhooks, the notice is not `signed`, and anybody may have sent it.
    Such a notice is not evidence, but only a reason to ask the PSP about a session. Cards are then
    read on schedule only.
    """

    merchant_account: MerchantAccount
    content: str
    token_id: TokenId | None = None
    page_reference: str | None = None
    card_token: CardToken | None = None
    guest_reference: GuestReference | None = None
    signed: bool = True
