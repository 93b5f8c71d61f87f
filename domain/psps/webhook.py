"""A webhook from a PSP, and the notices that the PSP's adapter reads from it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from domain.identifiers import CardToken, GuestReference, MerchantAccount, TokenId


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """A webhook as received, with header names in lower case and the raw bytes of the body.

    `merchant_account` is the account in the path of the request, or None if the path does not name
    an account.
    """

    headers: Mapping[str, str]
    body: bytes
    merchant_account: MerchantAccount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookNotice:
    """What a webhook is about: a session, or cards on file.

    `token_id` or the page's reference identifies a session. `card_token` identifies one card, and
    `guest_reference` all cards of a guest. These cards are then read at the PSP.

    If the PSP does not sign its webhooks, `signed` is False, because anybody may have sent the
    webhook. Such a notice is not evidence, but only a reason to ask the PSP about a session. It
    does not cause a reading of cards.
    """

    merchant_account: MerchantAccount
    content: str
    token_id: TokenId | None = None
    page_reference: str | None = None
    card_token: CardToken | None = None
    guest_reference: GuestReference | None = None
    signed: bool = True
