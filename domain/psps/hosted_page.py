"""The hosted payment page: the request to create it, its attempts, and its outcome."""

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
        """A hash of the text.

        The form on cardonfile's page sends the hash to state what the guest agrees to.
        """
        return sha256(f"{self.version}\n{self.language}\n{self.text}".encode()).hexdigest()


MAX_PAGE_LIFETIME: Final = timedelta(hours=24)
"""The maximum lifetime of a page that is requested from a PSP. A link that works longer leads to
several pages, one after the other.
"""


class Prefill(StrEnum):
    """The details with which a page is filled in.

    `GUEST` means the guest's name and email address, and any `billing_info`.
    """

    GUEST = "guest"
    BILLING = "billing"
    NOTHING = "nothing"


class Authentication(StrEnum):
    """Whether the bank must authenticate a guest who adds a card (3-D Secure)."""

    AUTOMATIC = "automatic"
    """The PSP and the bank decide."""
    REQUIRED = "required"


class PspGuest(NamedTuple):
    """The key under which a guest's reference at a PSP is stored.

    `prefill` states which details of the guest the page shows.

    A center must not see what another center sent about a guest. PSPs show the stored details of a
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

    - `guest_reference` is the PSP's reference for the guest, or None.
    - `guest_name` is empty, and `guest_email` is None, if the page must not show them.
    - `center_id` is None in a request that an earlier release stored.
    - `live_until` is the time before which the page must not end. It is at most 24 hours after
      `begun_at`, unless the PSP's minimum lifetime is longer.
    - `redirect_origin` is the origin to which the return and cancel addresses finally redirect the
      guest.
    - `color` is the center's color, such as `#1d4f91`. White text is readable on it.
    - `logo_uri` is the address of the center's logo, which ends in `.png` or `.webp`.
    - `refuse_funding` contains the kinds of cards that the center does not accept. The page says so
      before the guest types in a card, and refuses such cards if it can.
    - `authentication` is whether the bank must authenticate the guest.
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
        """The idempotency key with which the PSP creates this page only once."""
        return f"{self.token_id}:{self.attempt}"

    def without_personal_data(self) -> HostedPageRequest:
        """Return a copy of this request without the guest's name and addresses.

        Call this when the page is over.
        """
        return replace(self, guest_name="", guest_email=None, billing_info=None)

    @property
    def prefill(self) -> Prefill:
        """The details with which the page is filled in."""
        if self.guest_name:
            return Prefill.GUEST
        return Prefill.BILLING if self.billing_info else Prefill.NOTHING

    @property
    def guest_key(self) -> str:
        """The guest's key at the PSP, made from `guest_id`, `center_id` and `prefill`."""
        if self.center_id is None:
            return self.guest_id
        return f"{self.guest_id}:{self.center_id}:{self.prefill}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPage:
    """A page that the PSP created.

    `reference` is the PSP's reference for the page. `ends_at` is when the page expires. If there
    are `fields`, the browser must send them to `address` in a form (POST). If there are no fields,
    the browser is redirected to `address`.
    """

    reference: str
    address: str
    ends_at: datetime
    guest_reference: GuestReference
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAttempt:
    """One attempt to collect a card: the request for a page, and the page.

    `page` is None until the PSP has responded. `over` is set if the PSP refused the attempt
    permanently, or when the page has ended without a card. `unknown_since` is the time since which
    the PSP has not known the page.

    `agreed_at` is when the guest last agreed to the request's consent on cardonfile's page. It is
    None if the PSP's page shows the consent. `agreed_in` identifies the browser in which the guest
    last agreed: it is a hash of the browser's secret. It is None in attempts from an earlier
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
        """Return a copy of this attempt with the guest's agreement to the consent.

        The guest agreed at `now`, in the browser with the secret `browser`.
        """
        first = self.first_agreed_at or self.agreed_at or now
        hashed = self.hash_of(browser)
        return replace(self, agreed_at=now, agreed_in=hashed, first_agreed_at=first)

    def agreed_for(self, collected_at: datetime) -> datetime | None:
        """Return when the guest agreed to the storing of the card collected at `collected_at`.

        Return None if the PSP's page shows the consent. If the guest last agreed after the card was
        collected, the guest agreed in another browser and for another card. In this case, return
        the time when the guest first agreed.
        """
        is_later = self.agreed_at is not None and self.agreed_at > collected_at
        return self.first_agreed_at if is_later and self.first_agreed_at else self.agreed_at

    def has_agreed(self, browser: str | None) -> bool:
        """Return whether the guest agreed in the browser with this secret.

        Return False if the browser has no secret (None). Other programs may open the link too, such
        as a mail scanner that clicks on buttons. Their clicks must not count as the agreement of
        the person who types in the card.
        """
        return browser is not None and self.agreed_in == self.hash_of(browser)

    def hash_of(self, browser: str) -> str:
        """Return the hash that identifies a browser within the session.

        `browser` is the secret in the browser's cookie.
        """
        # The session is part of the hash, so that hashes do not connect the sessions of a browser.
        return sha256(f"{self.request.token_id}\n{browser}".encode()).hexdigest()

    def unknown(self, now: datetime) -> PageAttempt:
        """Return the new state of this attempt after the PSP reported the page as unknown."""
        # This time may come from a clock that was ahead.
        return replace(self, unknown_since=min(self.unknown_since or now, now))

    def without_personal_data(self) -> PageAttempt:
        """Return a copy of this attempt without the guest's personal data.

        Call this when the page is over.
        """
        page = None if self.page is None else replace(self.page, fields={})
        return replace(self, request=self.request.without_personal_data(), page=page)

    @property
    def is_unanswered(self) -> bool:
        """Whether the PSP's response is not stored yet, although the PSP may have been called."""
        return self.page is None and not self.over

    @property
    def has_live_page(self) -> bool:
        """Whether there is a page on which the guest can still type in a card."""
        return self.page is not None and not self.over


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalsOnPage:
    """The refused cards of a page. Every outcome includes them.

    `refused_cards` is how many cards the page has refused so far. If the PSP does not report this
    number without a further call, the adapter keeps the default. A number that is smaller than an
    earlier number is ignored.

    `refusal_code` is the PSP's code for why the last card was refused, such as
    `insufficient_funds`. It is never a text for people. It is None if the PSP does not give a
    reason, or no longer gives the reason.
    """

    refused_cards: int = 0
    refusal_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(RefusalsOnPage):
    """The guest has not finished: the card is not typed in yet, or the bank's challenge is open.

    This is also the outcome if the page has ended, but the PSP does not know yet whether the page
    collected a card. In the meantime, the link does not lead to another page.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCollected(RefusalsOnPage):
    """The PSP has stored a card that can be charged.

    `avs` is the result of the bank's check of the billing address. `charge_reference`, such as the
    id of the first payment, must be sent with later charges in addition to the token. It is None if
    the PSP does not need such a reference.

    `network_transaction_id` is the card scheme's id of the authorization, which may be sent with
    later charges. `authenticated` is whether the bank authenticated the guest (3-D Secure). Both
    are None if the PSP does not report them.
    """

    card: Card
    avs: AvsResult
    collected_at: datetime
    charge_reference: str | None = None
    network_transaction_id: str | None = None
    authenticated: bool | None = None

    @property
    def guest_reference(self) -> GuestReference:
        """The PSP's reference for the guest who owns the card."""
        return self.card.guest_reference

    @property
    def token(self) -> CardToken:
        """The PSP's token for the card."""
        return self.card.token


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCardCollected(RefusalsOnPage):
    """The PSP has stored something that can be charged, but that cannot be kept on file.

    It is either something other than a card, such as a bank account, or a card without a field that
    must be stored, such as the expiry date. In the second case, `missing` is the PSP's one-word
    name for that field. The page is over. `token` is never stored, and must be discarded.
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
    """The page has ended without a card, and can no longer collect a card."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUnknown(RefusalsOnPage):
    """The PSP does not know the page or its card, or does not know them yet.

    Adapters do not return this outcome. It represents the NotFound that `outcome` or `close`
    raised.
    """


Outcome: TypeAlias = Pending | CardCollected | NoCardCollected | CardRefused | PageClosed
"""The outcome of a page."""

Reported: TypeAlias = Outcome | PageUnknown | None
"""A PSP's report about a page, or None if the PSP did not respond."""
