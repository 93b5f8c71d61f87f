"""The hosted payment page: what is requested of a PSP, and what it reports."""

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
from domain.psps.card import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Consent:
    """The text that a guest agrees to when a card is stored, its version and language (RFC 5646)."""

    version: str
    text: str
    language: str = DEFAULT_LANGUAGE

    @property
    def digest(self) -> str:
        """What a form of ours names it by: a text that was changed has another."""
        return sha256(f"{self.version}\n{self.language}\n{self.text}".encode()).hexdigest()


MAX_PAGE_LIFETIME: Final = timedelta(hours=24)
"""The longest life that a page is asked for. A link that lives longer leads to several pages."""


class Prefill(StrEnum):
    """Whose details a page is given: the guest's on file, only the caller's `billing_info`, or none."""

    GUEST = "guest"
    BILLING = "billing"
    NOTHING = "nothing"


class PspGuest(NamedTuple):
    """Who has a reference of its own at a PSP.

    Centers may not read what another one has told of a guest. PSPs show on a page what they have
    stored of the guest before, so pages with different details must not share a reference.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    guest_id: GuestId
    center_id: CenterId
    prefill: Prefill


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPageRequest:
    """Every parameter of the call that creates the page of one attempt.

    It is committed before the PSP is called, so that a retry makes the same call.
    `guest_reference` is the PSP's reference for the guest, if there is one. `guest_name` is empty
    and `guest_email` None when the page must not show them. `center_id` is None in a request that
    an earlier release has stored. The page must live until `live_until`, which is at most 24 hours
    after `begun_at`, or longer if the PSP's minimum is longer. `redirect_origin` is the origin that
    the guest reaches after the return and cancel addresses. `color` is the center's, such as
    `#1d4f91`, on which white text is readable; `logo_uri` is the address of its logo, which
    ends in `.png` or `.webp`.
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

    @property
    def language(self) -> str:
        """The language of the page, which is that of the consent."""
        return self.consent.language

    @property
    def idempotency_key(self) -> str:
        """The key under which the PSP creates this page once, however often it is called."""
        return f"{self.token_id}:{self.attempt}"

    def without_personal_data(self) -> HostedPageRequest:
        """Return the request without the guest's name and addresses, once its page is over."""
        return replace(self, guest_name="", guest_email=None, billing_info=None)

    @property
    def prefill(self) -> Prefill:
        """Whose details the request has."""
        if self.guest_name:
            return Prefill.GUEST
        return Prefill.BILLING if self.billing_info else Prefill.NOTHING

    @property
    def guest_key(self) -> str:
        """The key of what has one `guest_reference`: the guest at a center, with such details."""
        if self.center_id is None:
            return self.guest_id
        return f"{self.guest_id}:{self.center_id}:{self.prefill}"


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedPage:
    """A page that the PSP has created: its reference there, its address, and its end.

    `fields` are what the browser must send to the address by a form (POST). Without any, a redirect
    leads there.
    """

    reference: str
    address: str
    ends_at: datetime
    guest_reference: GuestReference
    fields: Mapping[str, str] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageAttempt:
    """One attempt to create a page: the request, and the page once the PSP has responded.

    `over` is set when the PSP has refused it for good, or its page has ended without a card.
    `unknown_since` is set while the PSP does not know the page: since when it has said so.
    `agreed_at` is when the guest last agreed to the consent of the request on our page; None if the
    PSP's page shows it. `agreed_in` is a hash of the secret of the browser that agreed then; None
    also for what an earlier release has stored.
    """

    request: HostedPageRequest
    page: HostedPage | None = None
    over: bool = False
    agreed_at: datetime | None = None
    unknown_since: datetime | None = None
    agreed_in: str | None = None

    def agreed(self, browser: str, now: datetime) -> PageAttempt:
        """Note that the guest has agreed to the consent of the request in the browser with a secret."""
        return replace(self, agreed_at=now, agreed_in=self._hash_of(browser))

    def has_agreed(self, browser: str | None) -> bool:
        """Return whether the guest has agreed in this browser; None is a browser without a secret.

        Others may open the link too, such as a scanner of mails that presses buttons, and must not
        agree for the person who types the card.
        """
        return browser is not None and self.agreed_in == self._hash_of(browser)

    def _hash_of(self, browser: str) -> str:
        # With the session, so that the sessions of one browser cannot be found by it.
        return sha256(f"{self.request.token_id}\n{browser}".encode()).hexdigest()

    def unknown(self, now: datetime) -> PageAttempt:
        """Note that the PSP does not know the page, perhaps not yet."""
        # A clock that was ahead may have set the time.
        return replace(self, unknown_since=min(self.unknown_since or now, now))

    def without_personal_data(self) -> PageAttempt:
        """Return the attempt without the personal data of the guest, once its page is over."""
        page = None if self.page is None else replace(self.page, fields={})
        return replace(self, request=self.request.without_personal_data(), page=page)

    @property
    def is_unanswered(self) -> bool:
        """Whether the PSP may have been called, and its response is not stored."""
        return self.page is None and not self.over

    @property
    def has_live_page(self) -> bool:
        """Whether there is a page on which the guest may still enter a card."""
        return self.page is not None and not self.over


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalsOnPage:
    """What every outcome says of the cards that the page has refused so far.

    `refused_cards` is how many, as far as the PSP tells without a further call. A smaller number than
    before is ignored. `refusal_code` is the PSP's code for why the last of them was refused, such as
    `insufficient_funds`: a word, never a text for people. None means that the PSP does not tell, or
    no longer.
    """

    refused_cards: int = 0
    refusal_code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pending(RefusalsOnPage):
    """The guest is not done: nothing entered yet, or a challenge open.

    Also while the PSP cannot say yet whether a page that has ended holds a card: a link that lives
    on gets no other page until then.
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class CardCollected(RefusalsOnPage):
    """The PSP holds a card that can be charged; `avs` is the bank's result for the address.

    `charge_reference` is what a later charge must name beside the token, such as the id of the first
    payment; None if the PSP needs none. `authenticated` is whether the guest's bank has authenticated
    the guest (3-D Secure); None if the PSP does not tell.
    """

    card: Card
    avs: AvsResult
    collected_at: datetime
    charge_reference: str | None = None
    authenticated: bool | None = None

    @property
    def guest_reference(self) -> GuestReference:
        """The PSP's reference for the guest who has the card."""
        return self.card.guest_reference

    @property
    def token(self) -> CardToken:
        """The PSP's token for the card."""
        return self.card.token


@dataclass(frozen=True, slots=True, kw_only=True)
class NoCardCollected(RefusalsOnPage):
    """The PSP holds something else that can be charged, such as a bank account.

    Or it holds a card of which it does not tell what must be stored, such as the expiry date: `missing`
    is the name of that field at the PSP, one word. The page is over. `token` is never stored, and must
    be discarded.
    """

    guest_reference: GuestReference
    token: CardToken
    collected_at: datetime
    missing: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CardRefused(RefusalsOnPage):
    """The bank declined the last card. The guest may try another on the same page."""

    refused_cards: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PageClosed(RefusalsOnPage):
    """The page is over without a card, and cannot collect one any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageUnknown(RefusalsOnPage):
    """The PSP does not know the page or its card, or does not know it yet.

    No adapter returns it: it stands for the NotFound that `outcome` or `close` has raised.
    """


Outcome: TypeAlias = Pending | CardCollected | NoCardCollected | CardRefused | PageClosed
"""What became of a page."""

Reported: TypeAlias = Outcome | PageUnknown | None
"""What a PSP has reported of a page; None if it did not respond."""
