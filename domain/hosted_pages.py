"""The hosted payment page as the domain sees it: what is asked of a PSP, and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, TypeAlias

from domain.billing import AvsResult, BillingInfo
from domain.identifiers import CardToken, GuestId, GuestReference, MerchantAccount, TokenId
from domain.payment_accounts import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """The text that a guest agrees to when a card is stored, and the version it is known by."""

    version: str
    text: str


def consent_for(center_name: str) -> Consent:
    """Give the consent text that is in force: use, notice of changes, and how to withdraw."""
    return Consent(
        version=CONSENT_VERSION,
        text=(
            f"By adding this card you allow {center_name} to keep it on file and to charge it for "
            f"services, products and fees that you agree to. {center_name} will tell you before "
            "these terms change. You can withdraw at any time by asking for the card to be removed."
        ),
    )


CONSENT_VERSION: Final = "2026-11"
CONSENT_LANGUAGE: Final = "en"
"""The language of the consent text (RFC 5646): a page should be in the same one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPageRequest:
    """Every parameter of the call that makes the page of one attempt.

    It is committed before the PSP is called, so that a repeated call is the same call.
    `guest_reference` is the PSP's reference for the guest where we know one already.
    The page must live until `live_until`, or longer when the PSP cannot do less.
    `redirect_origin` is where the guest ends up after the return and cancel addresses.
    """

    token_id: TokenId
    attempt: int
    merchant_account: MerchantAccount
    guest_id: GuestId
    guest_reference: GuestReference | None
    guest_name: str
    guest_email: str | None
    center_name: str
    billing_info: BillingInfo | None
    avs: bool
    return_uri: str
    cancel_uri: str
    redirect_origin: str
    consent: Consent
    begun_at: datetime
    live_until: datetime

    @property
    def idempotency_key(self) -> str:
        """The key under which the PSP makes this page once, however often it is asked."""
        return f"{self.token_id}:{self.attempt}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPage:
    """A page that the PSP has made: its reference there, its address, and when it ends."""

    reference: str
    address: str
    ends_at: datetime
    guest_reference: GuestReference


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAttempt:
    """One attempt to have a page made: what was asked, and the page once the PSP has answered.

    `over` is set when the PSP refused it for good, or its page has died without a card.
    """

    request: HostedPageRequest
    page: HostedPage | None = None
    over: bool = False

    @property
    def is_unanswered(self) -> bool:
        """Tell whether the PSP has been asked, or was about to be, and has not answered yet."""
        return self.page is None and not self.over

    @property
    def has_live_page(self) -> bool:
        """Tell whether there is a page that may still bring a card."""
        return self.page is not None and not self.over


@dataclass(frozen=True, slots=True)
class Pending:
    """The guest is not done: nothing typed yet, the bank's challenge open, or a try refused."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCollected:
    """The PSP holds a card that can be charged; `avs` is what the bank said of the address."""

    card: Card
    avs: AvsResult
    collected_at: datetime

    @property
    def guest_reference(self) -> GuestReference:
        """The PSP's reference for the guest who has the card."""
        return self.card.guest_reference

    @property
    def token(self) -> CardToken:
        """The PSP's token for the card."""
        return self.card.token


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCardCollected:
    """The PSP holds something that can be charged and is no card, such as a bank account.

    The page is over. What `token` stands for is never kept, so it is discarded.
    """

    guest_reference: GuestReference
    token: CardToken
    collected_at: datetime


@dataclass(frozen=True, slots=True)
class CardRefused:
    """The bank refused the last card. The guest may still try another on the same page."""


@dataclass(frozen=True, slots=True)
class PageClosed:
    """The page has died without a card and will never have one."""


Outcome: TypeAlias = Pending | CardCollected | NoCardCollected | CardRefused | PageClosed


class EvidenceOrigin(StrEnum):
    """Where a piece of evidence came from."""

    RETURN = "return"
    WEBHOOK = "webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What a PSP said outside of its answers: return parameters, or a verified event.

    `content` is text in the adapter's own form; only the adapter reads it.
    """

    origin: EvidenceOrigin
    content: str
    received_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookDelivery:
    """A webhook as it came: header names in lower case, and the raw bytes of its body.

    `merchant_account` is the one that the address named, if it names one.
    """

    headers: Mapping[str, str]
    body: bytes
    merchant_account: MerchantAccount | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookNotice:
    """A session that a verified webhook speaks of, by `token_id` or by the page's reference."""

    merchant_account: MerchantAccount
    content: str
    token_id: TokenId | None = None
    page_reference: str | None = None
