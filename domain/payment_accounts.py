"""Cards on file, and the rule for what counts as the same card."""

from __future__ import annotations

from calendar import monthrange
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Final

from domain.identifiers import (
    AccountId,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    TokenId,
)
from domain.payment_configuration import PaymentConfiguration
from domain.sources import Source

EXPIRY_NOTICES: Final = (30, 7)
"""How many days before a card's last day its client is told, once each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A card as the PSP reports it, without its number and CVC.

    A payment operation charges `token`, which belongs to `guest_reference` at the PSP. The same
    card number has the same `fingerprint` within a merchant account. `expiry_month` is 1 to 12,
    `expiry_year` has four digits.
    """

    guest_reference: GuestReference
    token: CardToken
    fingerprint: str
    card_logo: str
    last_four: str
    expiry_month: int
    expiry_year: int

    def has_expired(self, now: datetime) -> bool:
        """Return whether the last day of the expiry month is over; `now` is in UTC."""
        return (now.year, now.month) > (self.expiry_year, self.expiry_month)

    def expires_with(self, other: Card) -> bool:
        """Return whether both have the same expiry date."""
        return (self.expiry_year, self.expiry_month) == (other.expiry_year, other.expiry_month)

    @property
    def last_day(self) -> datetime:
        """The start, in UTC, of the last day on which it can be charged."""
        _, days = monthrange(self.expiry_year, self.expiry_month)
        return datetime(self.expiry_year, self.expiry_month, days, tzinfo=UTC)

    def next_expiry_notice(self, now: datetime) -> datetime | None:
        """Return when its client is told next that it expires soon, or None if it is not."""
        times = [self.last_day - timedelta(days=days) for days in EXPIRY_NOTICES]
        return next((each for each in times if each > now), None)

    def days_of_expiry_notice(self, now: datetime) -> int | None:
        """Return which notice is due: 30 or 7, for that many days before the card's last day.

        None before the first is due, and once the card has expired.
        """
        if self.has_expired(now):
            return None
        begun = [days for days in EXPIRY_NOTICES if self.last_day - timedelta(days=days) <= now]
        return min(begun, default=None)

    @property
    def expiry_on(self) -> str:
        """The expiry date as printed on cards: MM/YY."""
        return f"{self.expiry_month:02}/{self.expiry_year % 100:02}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PaymentAccount(Card):
    """A card on file, of one guest at one center.

    At most one active account exists per guest, center, merchant account and fingerprint, and at
    most one per session (`token_id`). It is active until `removed_at` is set. `consent_version`
    names the text that the guest agreed to at `consented_at`. `expiry_notice_at` is when its client
    is told next that the card expires soon.

    A guest with active accounts at a center has one default among them: the first account is, until
    another is chosen. When the default is removed, the newest account left there becomes it.
    """

    account_id: AccountId
    token_id: TokenId
    guest_id: GuestId
    center_id: CenterId
    provider: ProviderName
    merchant_account: MerchantAccount
    source: Source
    consent_version: str
    consented_at: datetime
    created_at: datetime
    removed_at: datetime | None = None
    expiry_notice_at: datetime | None = None
    is_default: bool = False

    def is_same_card(self, card: Card, configuration: PaymentConfiguration) -> bool:
        """Return whether `card` is this account's card, at the same merchant account."""
        return (self.provider, self.merchant_account, self.fingerprint) == (
            configuration.provider,
            configuration.merchant_account,
            card.fingerprint,
        )

    def renewed(
        self, card: Card, *, consent_version: str, consented_at: datetime, now: datetime
    ) -> PaymentAccount:
        """Return this account with the same card's new expiry date and token."""
        return replace(
            self,
            **asdict(card),
            consent_version=consent_version,
            consented_at=consented_at,
            expiry_notice_at=card.next_expiry_notice(now),
        )

    def removed(self, now: datetime) -> PaymentAccount:
        """Return this account as removed: no longer listed, charged or a default."""
        return replace(self, removed_at=now, expiry_notice_at=None, is_default=False)


def has_default(accounts: Iterable[PaymentAccount]) -> bool:
    """Return whether one of a guest's active accounts at a center is the default."""
    return any(account.is_default for account in accounts)
