"""Cards on file, and the rule that says when two cards are the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import date, datetime, timedelta
from random import Random
from typing import Any, Final, Protocol

from domain.agreements.agreement import Agreement, last_kept_until
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
"""The time of the first reading. It finds changes that the bank made while the session was being
settled.
"""
READ_EVERY: Final = timedelta(days=27), timedelta(days=30)
READ_BEFORE_NOTICE: Final = timedelta(days=4), timedelta(days=1)
"""The earliest and the latest time before an expiry notice at which the card is read. The readings
are spread evenly between the two.
"""
READ_LEASE: Final = timedelta(hours=1)
"""The lease is long, so that accounts that cannot be decoded do not use up the budget."""
LOOK_AGAIN_AFTER: Final = timedelta(days=3, hours=12)
LOOKS: Final = 3
"""A card is gone after LOOKS counted refusals, each LOOK_AGAIN_AFTER further from the first."""
REMOVED: Final[dict[str, Any]] = {
    "due_at": None,
    "unanswered_since": None,
    "expiry_notice_at": None,
    "is_default": False,
    "keep_until": None,
}
"""The values of a removed account's fields, apart from `removed_at`. Any: each field has its own
type.
"""
NAMED_AT_PSP: Final[dict[str, Any]] = {
    "guest_reference": "",
    "token": "",
    "fingerprint": "",
    "charge_reference": None,
    "network_transaction_id": None,
}
"""The fields that name the guest or the card at the PSP, with their values after an erasure."""
READINGS_PER_MINUTE: Final = 60
"""The maximum number of readings at a merchant account. The PSP allows more calls, which are left
for guests.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Card, WorkAtPsp):
    """A card on file, of one guest at one center.

    There is at most one active account per guest, center, merchant account and fingerprint, and at
    most one per session. `token_id` is the session; for an imported card no session has this id.
    The account is active until `removed_at` is set. `consent_version` names the text to which the
    guest agreed before the card was typed, at `consented_at` by the PSP's clock. `expiry_notice_at`
    is the time of the next event about the card's expiry. `charge_reference`,
    `network_transaction_id` and `authenticated` are as in `CardCollected`. `keep_until` is the time
    after which the card is removed, because the guest agreed to charges for bookings only; None if
    the guest agreed that the card is kept.
    `withdrawn_at` is when the guest last withdrew the consent to other charges, or removed the card.

    `due_at` is the time of the next reading at the PSP. `asked_at` is when the account was last
    leased for a reading. `read_at` is the time of the stored state by the PSP's clock; None means
    `consented_at`. `refusals` counts the readings since `refused_since` at which the PSP did not
    know the card. The n-th reading is counted only from (n - 1) * LOOK_AGAIN_AFTER after
    `refused_since`.

    A guest with active accounts at a center has one default among them: the first account, until
    another is chosen. If the default is removed, the newest remaining account becomes the default.
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
    network_transaction_id: str | None = None
    authenticated: bool | None = None
    refused_since: datetime | None = None
    refusals: int = 0
    keep_until: datetime | None = None
    withdrawn_at: datetime | None = None

    @property
    def psp_account(self) -> PspAccount:
        """The merchant account at its PSP."""
        return PspAccount(self.provider, self.merchant_account)

    def is_same_card(self, card: Card, at: PspAccount) -> bool:
        """Return whether `card` is this account's card, at the same merchant account."""
        return self.psp_account == at and self.fingerprint == card.fingerprint

    def renewed(self, collected: CardCollected, *, consent_version: str, now: datetime) -> Account:
        """Return this account with the new expiry date and token of the same card."""
        # The card has the same number, so its facts stay, but the wallet may have changed.
        card = replace(collected.card.with_facts_of(self), wallet=collected.card.wallet)
        return replace(
            self,
            **asdict(card),
            charge_reference=collected.charge_reference,
            network_transaction_id=collected.network_transaction_id,
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

    def kept_longer(self, keep_until: datetime | None, consent_version: str) -> Account:
        """Return this account, kept at least until `keep_until`; None means that the card is kept.

        `consent_version` is stored if the guest agrees only now that the card is kept.
        """
        longest = longest_kept(self.keep_until, keep_until)
        is_now_kept = longest is None and self.keep_until is not None
        version = consent_version if is_now_kept else self.consent_version
        return replace(self, keep_until=longest, consent_version=version)

    def withdrawn(self, running: Sequence[Agreement], at: datetime) -> Account:
        """Return this account after a withdrawal: only the running agreements keep the card.

        `running` are the agreements under which the card may be charged, oldest first. Without
        them, the card is due to be removed.
        """
        keep_until = last_kept_until(running) or at
        version = running[-1].shown.version if running else self.consent_version
        return replace(self, keep_until=keep_until, consent_version=version, withdrawn_at=at)

    @property
    def is_taken_back(self) -> bool:
        """Whether the guest took the card back, and it stays for its bookings alone."""
        return self.withdrawn_at is not None and self.keep_until is not None

    def has_withdrawn(self, agreed_at: datetime) -> bool:
        """Return whether the guest has withdrawn a consent that was given at this time."""
        return self.withdrawn_at is not None and agreed_at <= self.withdrawn_at

    def removed(self, now: datetime) -> Account:
        """Return this account as removed: it is not listed, charged, read or the default."""
        return replace(self, removed_at=now, **REMOVED)

    @property
    def is_true_at(self) -> datetime:
        """The time by the PSP's clock at which the stored state of the card was true."""
        return self.read_at or self.consented_at

    def read(self, card: Card, *, read_at: datetime, now: datetime) -> Account:
        """Return this account with the card's state at the PSP.

        If the brand has changed, the facts from the former brand's bank are cleared:
        `authenticated`, `charge_reference` and `network_transaction_id`.
        """
        if (card.card_logo, card.last_four) == (self.card_logo, self.last_four):
            if card.fingerprint == card.token:
                # The PSP did not report a fingerprint in this reading, so the token stands for it.
                card = replace(card, fingerprint=self.fingerprint)
            card = card.with_facts_of(self)
        is_same = self.expires_with(card)
        # A PSP clock that is ahead must not prevent later readings from being applied.
        read = replace(
            self,
            **asdict(card),
            read_at=min(read_at, now),
            unanswered_since=None,
            refused_since=None,
            refusals=0,
        )
        if card.card_logo != self.card_logo:
            read = replace(
                read, authenticated=None, charge_reference=None, network_transaction_id=None
            )
        if not is_same:
            read = replace(read, expiry_notice_at=card.next_expiry_notice(now))
        return read.waiting(now)

    def refused(self, now: datetime) -> Account:
        """Note that the PSP does not know the card. The next reading waits as after an outage.

        The n-th refusal is counted only from (n - 1) * LOOK_AGAIN_AFTER after the first.
        """
        # A clock that was ahead may have set this time.
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
        """Whether the PSP did not know the card at three readings over a week."""
        return self.refusals >= LOOKS

    def waiting(self, now: datetime) -> Account:
        """Return this account, due for reading within 30 days and before its next notice."""
        # The jitter is computed from the account, so that the same history always gives the same
        # times.
        part = Random(f"{self.account_id}/{now}").random()  # noqa: S311 - it need not be secret
        least, most = READ_EVERY
        due_at = now + least + (most - least) * part
        if self.expiry_notice_at is not None:
            earliest, latest = READ_BEFORE_NOTICE
            before_notice = self.expiry_notice_at - latest - (earliest - latest) * part
            due_at = min(due_at, before_notice) if before_notice > now else due_at
        return replace(self, due_at=due_at)

    def notice_put_off(self, until: datetime, now: datetime) -> Account:
        """Return this account with its notice put off to `until`, and due for reading before."""
        due_at = self.due_at if self.unanswered_since else min(self.due_at or now, now)
        return replace(self, expiry_notice_at=until, due_at=due_at)

    def told_of_expiry(self, now: datetime) -> Account:
        """Return this account after its expiry notice, due for reading before the next notice."""
        told = replace(self, expiry_notice_at=self.next_expiry_notice(now))
        times = (self.due_at, told.waiting(now).due_at) if self.due_at else ()
        return replace(told, due_at=min(filter(None, times), default=None))

    def read_too_early(self, read_at: datetime, now: datetime) -> Account:
        """Note that a reading is not newer than the stored state. The card is read again later."""
        wait = min(max(self.is_true_at - read_at, MIN_BACKOFF), READ_FIRST_AFTER)
        return replace(self, due_at=now + wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFilter:
    """The cards on file to look for, of all guests and centers. None means no condition.

    A card expires on the last day of its month. `agreement_ends_before` finds the cards with an open
    agreement about a booking that ends before that time.
    """

    guest_id: GuestId | None = None
    center_id: CenterId | None = None
    merchant_account: MerchantAccount | None = None
    expires_from: date | None = None
    expires_before: date | None = None
    added_since: datetime | None = None
    agreement_ends_before: datetime | None = None
    only_active: bool = False


def longest_kept(first: datetime | None, second: datetime | None) -> datetime | None:
    """Return the later of two `keep_until` of the same card, or None if either is None.

    If the guest agreed for either that the card is kept, it is kept.
    """
    return None if first is None or second is None else max(first, second)


def has_default(accounts: Iterable[Account]) -> bool:
    """Return whether one of a guest's active accounts at a center is the default."""
    return any(account.is_default for account in accounts)


def heir_among(others: Sequence[Account]) -> Account | None:
    """Return the account that becomes the default when an account is removed.

    It is the newest of `others`, the remaining accounts. Return None without other accounts, or if
    one of these accounts is already the default.
    """
    return replace(others[-1], is_default=True) if others and not has_default(others) else None


class Accounts(WorkAtPsps, Protocol):
    """Cards on file."""

    def add(self, account: Account) -> None:
        """Store a new account.

        Raises AlreadyStored if there is already an active account with the same guest, center,
        merchant account and fingerprint, an active default of the same guest and center, or an
        account of the same session.
        """
        ...

    def get(self, account_id: AccountId) -> Account | None:
        """Return the account, removed or not, or None. A write unit locks it.

        To change an account, lock it by `active_at` instead. Two units that each locked one account
        of a guest, and then wanted the others, would wait for each other.
        """
        ...

    def update(self, account: Account) -> None:
        """Store an account that exists.

        A second active default of the same guest and center is a programming error, and raises the
        exception of the database.
        """
        ...

    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[Account]:
        """Return a guest's active accounts at a center, oldest first.

        A write unit locks the accounts, and other units wait until it ends. So after this call, an
        `add` sees every account that is added at the same time.
        """
        ...

    def removed_by_guest(self, guest_id: GuestId, center_id: CenterId) -> Sequence[Account]:
        """Return a guest's removed accounts at a center that have a `withdrawn_at`.

        Accounts that cannot be decoded are left out. Locks nothing.
        """
        ...

    def active_of(self, guest_id: GuestId) -> Sequence[Account]:
        """Return a guest's active accounts at all centers, oldest first. Locks as `active_at` does."""
        ...

    def give(self, goes: GuestId, stays: GuestId) -> None:
        """Give a guest's other accounts to another guest, after each active account was given."""
        ...

    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        """Return whether an active account of any guest and center holds this token.

        A write unit locks the token: other units wait here and in `Discards.get` until it ends.
        """
        ...

    def count_asked(self, now: datetime) -> Mapping[PspAccount, int]:
        """Count the accounts leased for reading within the last minute, by merchant account."""
        ...

    def active_at_psp(self, psp_account: PspAccount) -> Sequence[AccountId]:
        """Return the active accounts at a merchant account. Locks nothing."""
        ...

    def kept_until_before(
        self, now: datetime, *, at_most: int, skip: int = 0
    ) -> Sequence[Account | None]:
        """Return active accounts whose `keep_until` has passed, after the first `skip` of them.

        The account with the earliest `keep_until` comes first. None stands for an account that
        cannot be decoded. Locks nothing.
        """
        ...

    def is_other_read(self, account: Account, *, since: datetime) -> bool:
        """Return whether another active account at the merchant account was read after `since`."""
        ...

    def count_unknown(self, psp_account: PspAccount, *, since: datetime) -> int:
        """Count the accounts removed after `since` because their PSP did not know them."""
        ...

    def make_due(
        self,
        psp_account: PspAccount,
        now: datetime,
        *,
        token: CardToken | None,
        guest_reference: GuestReference | None,
    ) -> None:
        """Make active accounts due: those with this token, or those of this guest at the PSP."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Account | None:
        """Lease an account that is due for reading, and set its `asked_at`; None if there is none.

        A merchant account has READINGS_PER_MINUTE. Merchant accounts take turns, and are left out,
        as in `CardSessions.take_due`. The lease ends at `until`, which is the `due_at` of the
        returned account. An account that cannot be decoded is leased and skipped. The caller
        commits, even without a result.
        """
        ...

    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[Account]:
        """Return a page of a guest's active accounts, oldest first.

        `centers` None means all centers.
        """
        ...

    def is_expiry_notice_due(self, now: datetime) -> bool:
        """Return whether `with_expiry_notice_due` would find an account."""
        ...

    def with_expiry_notice_due(
        self, now: datetime, *, at_most: int, unreadable_until: datetime
    ) -> Sequence[Account | None]:
        """Return the first active accounts whose `expiry_notice_at` has come.

        A write unit locks them, and skips accounts that another unit has locked. None stands for an
        account that cannot be decoded; its notice is put off until `unreadable_until`.
        """
        ...

    def page_expiring(
        self, center_id: CenterId, *, before: date, request: PageRequest
    ) -> Page[Account]:
        """Return a page of a center's active accounts that expire before a date, soonest first.

        A card expires on the last day of its month. Accounts of the same month are listed oldest
        first. Accounts that cannot be decoded are counted and left out.
        """
        ...

    def remove_unreadable(
        self, guest_id: GuestId, now: datetime
    ) -> Sequence[tuple[PspAccount, GuestReference, CardToken]]:
        """Remove a guest's active accounts that cannot be decoded; return their tokens.

        A write unit locks all active accounts of the guest, as `active_at` does.
        """
        ...

    def blank(self, guest_id: GuestId) -> None:
        """Clear the references to the guest and the cards at PSPs in the guest's removed accounts."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a limited number of accounts removed before a time, with their consents.

        Returns the number. An account stays while its token is still to be discarded, and while an
        agreement that was given with it is stored, even if the agreement has moved since.
        """
        ...

    def search(self, wanted: AccountFilter, *, limit: int) -> Sequence[Account]:
        """Return accounts of any guest, newest first.

        If `wanted` limits the expiry, the cards that expire soonest come first instead.

        Accounts that cannot be decoded are left out. Reads every account, unless `wanted` names a
        guest, or a center and a time of expiry.
        """
        ...
