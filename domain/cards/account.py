"""Cards on file, and the rule for what counts as the same card."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime
from typing import Protocol

from domain.cards.source import Source
from domain.centers.payment_configuration import PaymentConfiguration
from domain.identifiers import (
    AccountId,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import Page, PageRequest
from domain.psps.card import Card


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Card):
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

    @property
    def psp_account(self) -> PspAccount:
        """The merchant account at its PSP."""
        return PspAccount(self.provider, self.merchant_account)

    def is_same_card(self, card: Card, configuration: PaymentConfiguration) -> bool:
        """Return whether `card` is this account's card, at the same merchant account."""
        is_there = self.psp_account == configuration.psp_account
        return is_there and self.fingerprint == card.fingerprint

    def renewed(
        self, card: Card, *, consent_version: str, consented_at: datetime, now: datetime
    ) -> Account:
        """Return this account with the same card's new expiry date and token."""
        return replace(
            self,
            **asdict(card),
            consent_version=consent_version,
            consented_at=consented_at,
            expiry_notice_at=card.next_expiry_notice(now),
        )

    def removed(self, now: datetime) -> Account:
        """Return this account as removed: no longer listed, charged or a default."""
        return replace(self, removed_at=now, expiry_notice_at=None, is_default=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFilter:
    """Which cards on file are looked for, of all guests and centers. None leaves a field open.

    A card expires on the last day of its month.
    """

    guest_id: GuestId | None = None
    center_id: CenterId | None = None
    merchant_account: MerchantAccount | None = None
    expires_from: date | None = None
    expires_before: date | None = None
    added_since: datetime | None = None
    only_active: bool = False


def has_default(accounts: Iterable[Account]) -> bool:
    """Return whether one of a guest's active accounts at a center is the default."""
    return any(account.is_default for account in accounts)


class Accounts(Protocol):
    """Cards on file."""

    def add(self, account: Account) -> None:
        """Store a new account.

        Raises AlreadyStored for a second active account with the same guest, center, merchant
        account and fingerprint, for a second active default of the same guest and center, and for
        a second account of the same session.
        """
        ...

    def get(self, account_id: AccountId) -> Account | None:
        """Return the account, removed or not, or None. A write unit locks it.

        A unit that changes an account locks it by `active_at` instead: two units that lock an
        account of the same guest each, and then the others, would wait for each other.
        """
        ...

    def update(self, account: Account) -> None:
        """Store an account that exists.

        A second active default of the same guest and center is a programming error, and raises the
        exception of the database.
        """
        ...

    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[Account]:
        """Return the active accounts of a guest at a center, oldest first.

        A write unit locks them, and other units wait here until it ends. So after this call an
        `add` cannot miss an account that is added at the same time.
        """
        ...

    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        """Return whether an active account, of any guest and center, holds this token.

        A write unit locks the token: other units wait here and in `Discards.get` until it ends.
        """
        ...

    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[Account]:
        """Return a page of a guest's active accounts, oldest first; `centers` None means all."""
        ...

    def is_expiry_notice_due(self, now: datetime) -> bool:
        """Return whether `with_expiry_notice_due` would find an account."""
        ...

    def with_expiry_notice_due(
        self, now: datetime, *, at_most: int, unreadable_until: datetime
    ) -> Sequence[Account | None]:
        """Return the active accounts whose `expiry_notice_at` has come, the first ones.

        A write unit locks them, and leaves out those that another unit has locked. None stands for
        one that cannot be decoded; its notice is put off until `unreadable_until`.
        """
        ...

    def page_expiring(
        self, center_id: CenterId, *, before: date, request: PageRequest
    ) -> Page[Account]:
        """Return a page of a center's active accounts that expire before a date, soonest first.

        A card expires on the last day of its month. Accounts of the same month come oldest first.
        One that cannot be decoded is counted and left out.
        """
        ...

    def remove_unreadable(
        self, guest_id: GuestId, now: datetime
    ) -> Sequence[tuple[PspAccount, GuestReference, CardToken]]:
        """Remove the active accounts of a guest that cannot be decoded; return their tokens.

        A write unit locks all active accounts of the guest, as `active_at` does.
        """
        ...

    def blank(self, guest_id: GuestId) -> None:
        """Delete what names the guest and the cards at PSPs in the guest's removed accounts."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a bounded number of accounts removed before that time, with their consents.

        Returns how many. One whose token is still to be discarded stays.
        """
        ...

    def search(self, wanted: AccountFilter, *, limit: int) -> Sequence[Account]:
        """Return accounts of any guest: those that expire first, or without such a limit the newest.

        Those that cannot be decoded are left out. Reads every account unless those of a guest are
        wanted, or what expires at a center.
        """
        ...
