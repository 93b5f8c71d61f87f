"""The hosted payment page: the request to a PSP, and the PSP's reports."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, NamedTuple, TypeAlias

from domain.billing import AvsResult, BillingInfo
from domain.identifiers import (
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    TokenId,
)
from domain.languages import DEFAULT_LANGUAGE
from domain.psps.card import Card, Funding


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """The text to which a guest agrees, with its version and its language (RFC 5646)."""

    version: str
    text: str
    language: str = DEFAULT_LANGUAGE

    @property
    def digest(self) -> str:
        """A hash of the text, by which cardonfile's page says what the guest agrees to."""
        return sha256(f"{self.version}\n{self.language}\n{self.text}".encode()).hexdigest()


MAX_PAGE_LIFETIME: Final = timedelta(hours=24)
"""The maximum lifetime that is requested for a page. A link with a longer lifetime leads to several
pages, one after the other.
"""


class Prefill(StrEnum):
    """The details that a page shows: the guest's, only the caller's `billing_info`, or none."""

    GUEST = "guest"
    BILLING = "billing"
    NOTHING = "nothing"


class Authentication(StrEnum):
    """Whether the bank must authenticate a guest who adds a card (3-D Secure)."""

    AUTOMATIC = "automatic"
    """PSP and bank decide."""
    REQUIRED = "required"


class PspGuest(NamedTuple):
    """The guest to whom a reference at a PSP belongs.

    A center may not read what another center sent about a guest. PSPs show stored details of the
    guest on their pages, so pages with different details must not share a reference.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    guest_id: GuestId
    center_id: CenterId
    prefill: Prefill


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPageRequest:
    """All parameters of the call that creates the page of one attempt.

    The request is committed before the PSP is called, so that a retry makes the same call.

    - `guest_reference` is the PSP's reference for the guest, if there is one.
    - `guest_name` is empty, and `guest_email` None, if the page must not show them.
    - `center_id` is None in a request that an earlier release stored.
    - `live_until` is the earliest end of the page. It is at most 24 hours after `begun_at`, unless
      the PSP's minimum is longer.
    - `redirect_origin` is the origin to which the return and cancel addresses finally lead the
      guest.
    - `color` is the center's color, such as `#1d4f91`, with enough contrast for white text.
    - `logo_uri` is the address of its logo, which ends in `.png` or `.webp`.
    - `refuse_funding` names the cards that the center does not accept. The page says so before the
      guest types, and refuses them if it can.
    - `authentication` says whether the bank must authenticate the guest.
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
    center_id: CenterId | None = None
    color: str | None = None
    logo_uri: str | None = None
    refuse_funding: frozenset[Funding] = frozenset()
    authentication: Authentication = Authentication.AUTOMATIC

    @property
    def language(self) -> str:
        """The language of the page, which is the language of the consent."""
        return self.consent.language

    @property
    def idempotency_key(self) -> str:
        """The key under which the PSP creates this page once, however often it is called."""
        return f"{self.token_id}:{self.attempt}"

    def without_personal_data(self) -> HostedPageRequest:
        """Return the request without the guest's name and addresses, for a page that is over."""
        return replace(self, guest_name="", guest_email=None, billing_info=None)

    @property
    def prefill(self) -> Prefill:
        """The details that the request gives to the page."""
        if self.guest_name:
            return Prefill.GUEST
        return Prefill.BILLING if self.billing_info else Prefill.NOTHING

    @property
    def guest_key(self) -> str:
        """The key for the guest's reference at the PSP: guest, center, and details on the page."""
        if self.center_id is None:
            return self.guest_id
        return f"{self.guest_id}:{self.center_id}:{self.prefill}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPage:
    """A page that the PSP created: its reference there, its address, and its end.

    If there are `fields`, the browser must send them to the address by a form (POST). Otherwise a
    redirect leads there.
    """

    reference: str
    address: str
    ends_at: datetime
    guest_reference: GuestReference
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAttempt:
    """One attempt to create a page: the request, and the page once the PSP has responded.

    `over` is set once the PSP refused the attempt permanently, or the page ended without a card.
    `unknown_since` is the time since which the PSP has not known the page. `agreed_at` is when the
    guest last agreed to the request's consent on cardonfile's page; None if the PSP's page shows
    the consent. `agreed_in` is a hash of that browser's secret; None in attempts of an earlier
    release. `first_agreed_at` is when the guest first agreed.
    """

    request: HostedPageRequest
    page: HostedPage | None = None
    over: bool = False
    agreed_at: datetime | None = None
    unknown_since: datetime | None = None
    agreed_in: str | None = None
    first_agreed_at: datetime | None = None

    def agreed(self, browser: str, now: datetime) -> PageAttempt:
        """Record that the guest agreed to the request's consent in the browser with this secret."""
        first = self.first_agreed_at or self.agreed_at or now
        hashed = self.hash_of(browser)
        return replace(self, agreed_at=now, agreed_in=hashed, first_agreed_at=first)

    def agreed_for(self, collected_at: datetime) -> datetime | None:
        """Return when the guest agreed for a card; None if the PSP's page shows the consent.

        An agreement in another browser, after the card was typed, was not for this card.
        """
        is_later = self.agreed_at is not None and self.agreed_at > collected_at
        return self.first_agreed_at if is_later and self.first_agreed_at else self.agreed_at

    def has_agreed(self, browser: str | None) -> bool:
        """Return whether the guest agreed in this browser; None is a browser without a secret.

        Others may open the link too, such as a mail scanner that presses buttons. They must not
        agree in place of the person who types the card.
        """
        return browser is not None and self.agreed_in == self.hash_of(browser)

    def hash_of(self, browser: str) -> str:
        """Return the hash by which a browser with this secret is known in the session."""
        # Hashed together with the session, so that the hash does not connect the sessions of one
        # browser.
        return sha256(f"{self.request.token_id}\n{browser}".encode()).hexdigest()

    def unknown(self, now: datetime) -> PageAttempt:
        """Record that the PSP does not know the page, or does not know it yet."""
        # A clock that was ahead may have set this time.
        return replace(self, unknown_since=min(self.unknown_since or now, now))

    def without_personal_data(self) -> PageAttempt:
        """Return the attempt without the guest's personal data, for a page that is over."""
        page = None if self.page is None else replace(self.page, fields={})
        return replace(self, request=self.request.without_personal_data(), page=page)

    @property
    def is_unanswered(self) -> bool:
        """Whether the PSP may have been called, but its response is not stored."""
        return self.page is None and not self.over

    @property
    def has_live_page(self) -> bool:
        """Whether the guest may still type a card on a page."""
        return self.page is not None and not self.over


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalsOnPage:
    """The refused cards of a page, which every outcome reports.

    `refused_cards` is their number so far, if the PSP reports it without a further call. A number
    smaller than an earlier number is ignored. `refusal_code` is the PSP's reason for the last
    refusal, such as `insufficient_funds`: a code, never a text for people. None means that the PSP
    gives no reason, or no longer gives it.
    """

    refused_cards: int = 0
    refusal_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(RefusalsOnPage):
    """The guest has not finished: no card is typed yet, or the bank's challenge is open.

    Also the outcome while the PSP cannot say yet whether a page that has ended holds a card. In the
    meantime, the link does not lead to another page.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCollected(RefusalsOnPage):
    """The PSP holds a card that can be charged; `avs` is the bank's check of the address.

    `charge_reference` must be sent with a later charge beside the token, such as the id of the
    first payment; None if the PSP needs no such reference. `network_transaction_id` is the id that
    the card scheme gave to the authorization of the card; later charges may name it.
    `authenticated` is whether the bank authenticated the guest (3-D Secure). Both are None if the
    PSP does not report them.
    """

    card: Card
    avs: AvsResult
    collected_at: datetime
    charge_reference: str | None = None
    network_transaction_id: str | None = None
    authenticated: bool | None = None

    @property
    def guest_reference(self) -> GuestReference:
        """The PSP's reference for the card's guest."""
        return self.card.guest_reference

    @property
    def token(self) -> CardToken:
        """The PSP's token for the card."""
        return self.card.token


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCardCollected(RefusalsOnPage):
    """The PSP holds something else that can be charged, such as a bank account.

    Or the PSP holds a card but leaves out a field that must be stored, such as the expiry date:
    `missing` is the name of that field at the PSP, one word. The page is over. `token` is never
    stored, and must be discarded.
    """

    guest_reference: GuestReference
    token: CardToken
    collected_at: datetime
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRefused(RefusalsOnPage):
    """The bank declined the last card. The guest may try another card on the same page."""

    refused_cards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PageClosed(RefusalsOnPage):
    """The page is over without a card, and cannot collect one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUnknown(RefusalsOnPage):
    """The PSP does not know the page or its card, or does not know them yet.

    Adapters do not return this: it stands for the NotFound that `outcome` or `close` raised.
    """


Outcome: TypeAlias = Pending | CardCollected | NoCardCollected | CardRefused | PageClosed
"""The outcome of a page."""

Reported: TypeAlias = Outcome | PageUnknown | None
"""A PSP's report about a page; None if the PSP did not respond."""
