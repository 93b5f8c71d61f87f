"""Cards on file, and the rule for what counts as the same card."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from random import Random
from typing import Any, Final, Protocol

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
from domain.psps.hosted_page import CardCollected
from domain.retries import MIN_BACKOFF, WorkAtPsp, WorkAtPsps
from domain.source import Source

READ_FIRST_AFTER: Final = timedelta(days=1)
"""What a bank changes while a session is being settled is read then."""
READ_EVERY: Final = timedelta(days=27), timedelta(days=30)
READ_BEFORE_NOTICE: Final = timedelta(days=4), timedelta(days=1)
"""When a card is read at its PSP: between these times, spread evenly."""
READ_LEASE: Final = timedelta(hours=1)
"""Long, so that the budget is not spent on accounts that cannot be decoded."""
LOOK_AGAIN_AFTER: Final = timedelta(days=3, hours=12)
LOOKS: Final = 3
"""A card that its PSP refuses to tell of counts as gone after so many looks, with such times between."""
REMOVED: Final[dict[str, Any]] = {
    "due_at": None,
    "unanswered_since": None,
    "expiry_notice_at": None,
    "is_default": False,
}
"""What the fields of a removed account hold beside `removed_at`. Any: each has its own type."""
NAMED_AT_PSP: Final[dict[str, Any]] = {
    "guest_reference": "",
    "token": "",
    "fingerprint": "",
    "charge_reference": None,
}
"""Fields that name the guest or the card at the PSP, and what an erasure leaves there."""
READINGS_PER_MINUTE: Final = 60
"""The budget of a merchant account. Its PSP allows more, and the rest is for guests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Card, WorkAtPsp):
    """A card on file, of one guest at one center.

    At most one active account exists per guest, center, merchant account and fingerprint, and at
    most one per session (`token_id`, which is of none if the card was imported). It is active until
    `removed_at` is set. `consent_version` names the text that the guest agreed to before the card
    was typed, at `consented_at`, by the PSP's clock. `expiry_notice_at` is when its client is told
    next that the card expires soon. `charge_reference` and `authenticated` are as in
    `CardCollected`.

    `due_at` is when it is read next at its PSP, `asked_at` when it was taken for that last, and
    `read_at` the time, by the PSP's clock, of what is stored; None means `consented_at`. `refusals` counts the looks since `refused_since`, each at least
    LOOK_AGAIN_AFTER after the one before, at which the PSP did not know the card.

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
    asked_at: datetime | None = None
    read_at: datetime | None = None
    charge_reference: str | None = None
    authenticated: bool | None = None
    refused_since: datetime | None = None
    refusals: int = 0

    @property
    def psp_account(self) -> PspAccount:
        """The merchant account at its PSP."""
        return PspAccount(self.provider, self.merchant_account)

    def is_same_card(self, card: Card, at: PspAccount) -> bool:
        """Return whether `card` is this account's card, at the same merchant account."""
        return self.psp_account == at and self.fingerprint == card.fingerprint

    def renewed(self, collected: CardCollected, *, consent_version: str, now: datetime) -> Account:
        """Return this account with the same card's new expiry date and token."""
        card = collected.card
        return replace(
            self,
            **asdict(card),
            charge_reference=collected.charge_reference,
            authenticated=collected.authenticated,
            consent_version=consent_version,
            consented_at=collected.collected_at,
            expiry_notice_at=card.next_expiry_notice(now),
            due_at=now + READ_FIRST_AFTER,
            read_at=None,
            unanswered_since=None,
            refused_since=None,
            refusals=0,
        )

    def removed(self, now: datetime) -> Account:
        """Return this account as removed: no longer listed, charged, read or a default."""
        return replace(self, removed_at=now, **REMOVED)

    @property
    def is_true_at(self) -> datetime:
        """When the card was at its PSP as it is stored, by the PSP's clock."""
        return self.read_at or self.consented_at

    def read(self, card: Card, *, read_at: datetime, now: datetime) -> Account:
        """Return this account with the card as it is at the PSP."""
        if card.fingerprint == card.token and (card.card_logo, card.last_four) == (
            self.card_logo,
            self.last_four,
        ):
            # The PSP does not tell the fingerprint, now.
            card = replace(card, fingerprint=self.fingerprint)
        is_same = self.expires_with(card)
        # A clock that is ahead must not keep later readings from being applied.
        read = replace(
            self,
            **asdict(card),
            read_at=min(read_at, now),
            unanswered_since=None,
            refused_since=None,
            refusals=0,
        )
        if not is_same:
            read = replace(read, expiry_notice_at=card.next_expiry_notice(now))
        return read.waiting(now)

    def refused(self, now: datetime) -> Account:
        """Note that the PSP refuses to tell of the card, as if it did not respond.

        It counts as another look only if the one before is long enough ago.
        """
        # A clock that was ahead may have set the time.
        since = min(self.refused_since or now, now)
        looks = min(self.refusals, LOOKS - 1)
        is_look = now >= since + LOOK_AGAIN_AFTER * looks
        return replace(
            self.psp_unavailable(now),
            refused_since=since,
            refusals=looks + 1 if is_look else self.refusals,
        )

    @property
    def is_unknown(self) -> bool:
        """Whether the PSP has refused to tell of the card on three looks over a week."""
        return self.refusals >= LOOKS

    def waiting(self, now: datetime) -> Account:
        """Return this account, to be read in 30 days at the latest, and before its next notice."""
        # The jitter follows from the account, so that the same history always repeats itself.
        part = Random(f"{self.account_id}/{now}").random()  # noqa: S311 - it need not be secret
        least, most = READ_EVERY
        due_at = now + least + (most - least) * part
        if self.expiry_notice_at is not None:
            earliest, latest = READ_BEFORE_NOTICE
            before_notice = self.expiry_notice_at - latest - (earliest - latest) * part
            due_at = min(due_at, before_notice) if before_notice > now else due_at
        return replace(self, due_at=due_at)

    def notice_put_off(self, until: datetime, now: datetime) -> Account:
        """Return this account, to be read before its client is told that it expires soon."""
        due_at = self.due_at if self.unanswered_since else min(self.due_at or now, now)
        return replace(self, expiry_notice_at=until, due_at=due_at)

    def told_of_expiry(self, now: datetime) -> Account:
        """Return this account once its client was told, to be read before the next notice."""
        told = replace(self, expiry_notice_at=self.next_expiry_notice(now))
        times = (self.due_at, told.waiting(now).due_at) if self.due_at else ()
        return replace(told, due_at=min(filter(None, times), default=None))

    def read_too_early(self, read_at: datetime, now: datetime) -> Account:
        """Note that a reading is not later than what is stored. It is read again once one can be."""
        wait = min(max(self.is_true_at - read_at, MIN_BACKOFF), READ_FIRST_AFTER)
        return replace(self, due_at=now + wait)


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


def heir_among(others: Sequence[Account]) -> Account | None:
    """Return the account that becomes the default when the one beside these is removed.

    It is the newest; none is needed if one of them is the default already.
    """
    return replace(others[-1], is_default=True) if others and not has_default(others) else None


class Accounts(WorkAtPsps, Protocol):
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

    def count_asked(self, now: datetime) -> Mapping[PspAccount, int]:
        """Count those taken within a minute, by merchant account."""
        ...

    def active_at_psp(self, psp_account: PspAccount) -> Sequence[AccountId]:
        """Return the active accounts at a merchant account; locks nothing."""
        ...

    def is_other_read(self, account: Account, *, since: datetime) -> bool:
        """Return whether another active account at the merchant account was read after `since`."""
        ...

    def count_unknown(self, psp_account: PspAccount, *, since: datetime) -> int:
        """Count those at a merchant account that were removed after `since` and were unknown there."""
        ...

    def make_due(
        self,
        psp_account: PspAccount,
        now: datetime,
        *,
        token: CardToken | None,
        guest_reference: GuestReference | None,
    ) -> None:
        """Make the active accounts due that hold this token, or belong to this guest at the PSP."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Account | None:
        """Lease an account that is due to be read, and set its `asked_at`; None when none is.

        A merchant account has READINGS_PER_MINUTE. Merchant accounts take turns and are left out as
        in `CardSessions.take_due`. The lease ends at `until`, which is the `due_at` of the account
        returned. One that cannot be decoded is leased and passed over. The caller commits, even if
        none is returned.
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
