"""Cards on file, and the rule that decides whether two of them are the same card."""

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
"""How long a card that was stored or renewed waits for its first reading. The reading finds changes
that the bank made while the session was being settled.
"""
READ_EVERY: Final = timedelta(days=27), timedelta(days=30)
READ_BEFORE_NOTICE: Final = timedelta(days=4), timedelta(days=1)
"""The longest and the shortest time between a reading and the expiry notice that follows it. The
readings of all cards are spread evenly between these two limits.
"""
READ_LEASE: Final = timedelta(hours=1)
"""How long an account is leased for a reading. Accounts that cannot be decoded are leased too, and
each of their leases counts toward READINGS_PER_MINUTE. The lease is long so that they are leased
rarely.
"""
MIN_REFUSAL_INTERVAL: Final = timedelta(days=3, hours=12)
"""The minimum interval between counted refusals. A refusal is a reading at which the PSP does not
know the card. The n-th refusal is counted only if it comes at least (n - 1) times this interval
after the first refusal.
"""
REFUSALS_UNTIL_UNKNOWN: Final = 3
"""The number of counted refusals after which a card is unknown, and may be removed."""
REMOVED: Final[dict[str, Any]] = {
    "due_at": None,
    "unanswered_since": None,
    "expiry_notice_at": None,
    "is_default": False,
    "keep_until": None,
}
"""The fields that a removal changes besides `removed_at`, with their new values. The type is Any
because each field has its own type.
"""
CLEARED_PSP_IDENTIFIERS: Final[dict[str, Any]] = {
    "guest_reference": "",
    "token": "",
    "fingerprint": "",
    "charge_reference": None,
    "network_transaction_id": None,
}
"""The fields that identify the guest or the card at the PSP, with their values after an erasure."""
READINGS_PER_MINUTE: Final = 60
"""The maximum number of cards that are read at a merchant account in a minute. The PSP allows more
calls per minute. The other calls are reserved for guests' requests.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account(Card, WorkAtPsp):
    """A payment account: the card on file of one guest at one center.

    The account is active until `removed_at` is set. There is at most one active account for each
    combination of guest, center, merchant account and fingerprint. `token_id` is the session that
    stored the card, and a session stores at most one account. If the card was imported, `token_id`
    does not name a session.

    One of a guest's active accounts at a center is the default. It is the first account until the
    guest's default is changed. If the default is removed, the newest remaining account becomes the
    default.

    `consent_version` names the text to which the guest agreed. `consented_at` is when the card was
    collected with this consent, by the PSP's clock. If the guest agreed only to charges for
    bookings, `keep_until` is the time after which the card is removed. If the guest also agreed to
    other charges, `keep_until` is None, and the card is kept without an end date. `withdrawn_at` is
    when the guest last withdrew the consent to other charges, or removed the card.

    `expiry_notice_at` is the time of the next event about the card's expiry. `charge_reference`,
    `network_transaction_id` and `authenticated` are as in `CardCollected`.

    `due_at` is the time of the next reading of the card at the PSP. `asked_at` is when the account
    was last leased for a reading. `read_at` is the time by the PSP's clock at which the card was
    last read; it is None if the card has not been read since `consented_at`. `refusals` counts the
    readings since `refused_since` at which the PSP did not know the card, as described at
    MIN_REFUSAL_INTERVAL.
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
        """The merchant account at which the PSP has stored the card."""
        return PspAccount(self.provider, self.merchant_account)

    def is_same_card(self, card: Card, at: PspAccount) -> bool:
        """Return whether `card` at the merchant account `at` is the card of this account."""
        return self.psp_account == at and self.fingerprint == card.fingerprint

    def renewed(self, collected: CardCollected, *, consent_version: str, now: datetime) -> Account:
        """Return a copy of this account that is renewed with the card in `collected`.

        Call this if the guest typed in the same card once more. The copy has the new token, the new
        expiry date and the new consent.
        """
        # The number is the same, so the facts about the card stay; only the wallet may differ.
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
        """Return a copy of this account that is kept at least until `keep_until`.

        A `keep_until` of None means that the account is kept without an end date. If this account
        has no end date, neither has the copy. If this account has an end date but the copy has
        none, the copy gets the given `consent_version`.
        """
        longest = longest_kept(self.keep_until, keep_until)
        is_now_kept = longest is None and self.keep_until is not None
        version = consent_version if is_now_kept else self.consent_version
        return replace(self, keep_until=longest, consent_version=version)

    def withdrawn(self, running: Sequence[Agreement], at: datetime) -> Account:
        """Return a copy of this account whose consent was withdrawn at the time `at`.

        Call this if the guest withdrew the consent or removed the card. `running` are the
        agreements under which the card may be charged, oldest first. The card is kept only for
        these agreements. If `running` is empty, the card is due to be removed.
        """
        keep_until = last_kept_until(running) or at
        version = running[-1].shown.version if running else self.consent_version
        return replace(self, keep_until=keep_until, consent_version=version, withdrawn_at=at)

    @property
    def is_taken_back(self) -> bool:
        """Whether the card stays only for bookings, because the guest removed it or withdrew consent."""
        return self.withdrawn_at is not None and self.keep_until is not None

    def has_withdrawn(self, agreed_at: datetime) -> bool:
        """Return whether the guest has withdrawn a consent that was given at `agreed_at`."""
        return self.withdrawn_at is not None and agreed_at <= self.withdrawn_at

    def removed(self, now: datetime) -> Account:
        """Return a copy of this account that was removed at `now`.

        A removed account is not listed, charged or read, and is not the default.
        """
        return replace(self, removed_at=now, **REMOVED)

    @property
    def state_as_of(self) -> datetime:
        """The time, by the PSP's clock, at which the stored details of the card were current."""
        return self.read_at or self.consented_at

    def read(self, card: Card, *, read_at: datetime, now: datetime) -> Account:
        """Return a copy of this account with the details of `card`.

        `read_at` is when the details were read at the PSP, by the PSP's clock.

        If the brand has changed, `authenticated`, `charge_reference` and `network_transaction_id`
        are cleared, because their values come from the bank that issued the card of the old brand.
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
        """Return a copy of this account that records a refusal at the time `now`.

        A refusal is a reading at which the PSP did not know the card. It is counted as described at
        MIN_REFUSAL_INTERVAL. The next reading is scheduled as if the PSP had not responded.
        """
        # This time may come from a clock that was ahead.
        since = min(self.refused_since or now, now)
        counted = min(self.refusals, REFUSALS_UNTIL_UNKNOWN - 1)
        is_counted = now >= since + MIN_REFUSAL_INTERVAL * counted
        return replace(
            self.psp_unavailable(now),
            refused_since=since,
            refusals=counted + 1 if is_counted else self.refusals,
        )

    @property
    def is_unknown(self) -> bool:
        """Whether the number of counted refusals has reached REFUSALS_UNTIL_UNKNOWN."""
        return self.refusals >= REFUSALS_UNTIL_UNKNOWN

    def waiting(self, now: datetime) -> Account:
        """Return a copy of this account whose next reading is scheduled.

        The account is read within 30 days, and early enough before its next expiry notice
        (READ_BEFORE_NOTICE). If it is too late for that, the notice does not affect the time of the
        reading.
        """
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

    def with_expiry_notice_postponed(self, until: datetime, now: datetime) -> Account:
        """Return a copy of this account whose expiry notice is postponed to `until`.

        The copy's card is due to be read at the PSP now. But if the last attempt to read the card
        failed, the time of the next attempt stays unchanged.
        """
        due_at = self.due_at if self.unanswered_since else min(self.due_at or now, now)
        return replace(self, expiry_notice_at=until, due_at=due_at)

    def after_expiry_notice(self, now: datetime) -> Account:
        """Return a copy of this account whose next expiry notice is scheduled.

        If a reading of the account is scheduled, the copy is due at its present `due_at` or at the
        time that `waiting` chooses, whichever is earlier.
        """
        noted = replace(self, expiry_notice_at=self.next_expiry_notice(now))
        times = (self.due_at, noted.waiting(now).due_at) if self.due_at else ()
        return replace(noted, due_at=min(filter(None, times), default=None))

    def read_too_early(self, read_at: datetime, now: datetime) -> Account:
        """Return a copy of this account whose next reading is postponed.

        Call this after a reading whose `read_at` is not later than `state_as_of`. Such a reading
        does not say anything new about the card.
        """
        wait = min(max(self.state_as_of - read_at, MIN_BACKOFF), READ_FIRST_AFTER)
        return replace(self, due_at=now + wait)


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountFilter:
    """The conditions of a search for cards on file. A field that is None is not a condition.

    A card expires on the last day of its expiry month. `agreement_ends_before` finds cards that
    guarantee a booking, if the booking ends before the given time. A booking does not count if the
    agreement about it has ended.
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
    """Return the later of two values for the `keep_until` of a card, or None if either is None.

    A `keep_until` of None means that the card is kept without an end date, as the guest agreed.
    """
    return None if first is None or second is None else max(first, second)


def has_default(accounts: Iterable[Account]) -> bool:
    """Return whether one of a guest's active accounts at a center is the default."""
    return any(account.is_default for account in accounts)


def heir_among(others: Sequence[Account]) -> Account | None:
    """Return the account that becomes the default when an account is removed.

    The new default is the newest of `others`, the remaining accounts. Return None if there are no
    other accounts, or if one of them is already the default.
    """
    return replace(others[-1], is_default=True) if others and not has_default(others) else None


class Accounts(WorkAtPsps, Protocol):
    """Repository of cards on file."""

    def add(self, account: Account) -> None:
        """Store a new account.

        Raises AlreadyStored if one of these is already stored:

        - An active account with the same guest, center, merchant account and fingerprint.
        - An active default account of the same guest and center, if `account` is the default.
        - An account of the same session.
        """
        ...

    def get(self, account_id: AccountId) -> Account | None:
        """Return the account, removed or not, or None if there is no such account.

        In a write unit, this call locks the account. To change an account, lock all of the guest's
        active accounts at the center with `active_at` instead. If two units locked two different
        accounts of the guest with `get`, and then both called `active_at`, they would deadlock.
        """
        ...

    def update(self, account: Account) -> None:
        """Replace a stored account.

        A second active default of the same guest and center is a programming error. It raises the
        database's own exception.
        """
        ...

    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[Account]:
        """Return a guest's active accounts at a center, oldest first.

        In a write unit, this call locks the accounts. Other write units that call it for the same
        guest wait until this unit ends. After this call, `add` therefore sees every account that
        another unit has added for the guest.
        """
        ...

    def removed_by_guest(self, guest_id: GuestId, center_id: CenterId) -> Sequence[Account]:
        """Return a guest's removed accounts at a center for which the guest withdrew the consent.

        A removal by the guest counts as a withdrawal. Accounts that cannot be decoded are left out.
        The accounts are not locked.
        """
        ...

    def active_of(self, guest_id: GuestId) -> Sequence[Account]:
        """Return a guest's active accounts at all centers, oldest first.

        In a write unit, this call locks the accounts as `active_at` does.
        """
        ...

    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        """Move the removed accounts of the guest `merged` to the guest `remaining`.

        Before this call, the caller must move or remove the active accounts of `merged`.
        """
        ...

    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        """Return whether an active account of any guest at any center has this token.

        In a write unit, this call locks the token. Other write units that call this or
        `Discards.get` for the same token wait until this unit ends.
        """
        ...

    def count_asked(self, now: datetime) -> Mapping[PspAccount, int]:
        """Return how many cards were leased for reading in the last minute.

        The cards are counted for each merchant account.
        """
        ...

    def active_at_psp(self, psp_account: PspAccount) -> Sequence[AccountId]:
        """Return the ids of the active accounts at a merchant account.

        The accounts are not locked.
        """
        ...

    def due_for_removal(
        self, now: datetime, *, at_most: int, skip: int = 0
    ) -> Sequence[Account | None]:
        """Return at most `at_most` active accounts whose `keep_until` has passed.

        The account with the earliest `keep_until` comes first, and the first `skip` accounts are
        left out. In the result, None stands for an account that cannot be decoded. The accounts
        are not locked.
        """
        ...

    def was_another_read(self, account: Account, *, since: datetime) -> bool:
        """Return whether another active account at the same merchant account was read after `since`."""
        ...

    def count_unknown(self, psp_account: PspAccount, *, since: datetime) -> int:
        """Return how many accounts were removed after `since` because the PSP did not know them."""
        ...

    def make_due(
        self,
        psp_account: PspAccount,
        now: datetime,
        *,
        token: CardToken | None,
        guest_reference: GuestReference | None,
    ) -> None:
        """Make active accounts due for reading at `now`.

        If `guest_reference` is not None, the accounts with this reference become due. If it is
        None, the accounts with this `token` become due.
        """
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Account | None:
        """Lease an account that is due for reading, set its `asked_at`, and return the account.

        Return None if no account is due. At most READINGS_PER_MINUTE accounts of a merchant account
        are leased in a minute. As in `CardSessions.take_due`, merchant accounts take turns, and
        those in `except_at` are left out. The lease ends at `until`, which is the `due_at` of the
        returned account. An account that cannot be decoded is leased and skipped, so the caller
        must commit even if the result is None.
        """
        ...

    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[Account]:
        """Return a page of a guest's active accounts, oldest first.

        If `centers` is None, the accounts at all centers are included.
        """
        ...

    def is_expiry_notice_due(self, now: datetime) -> bool:
        """Return whether the expiry notice of any account is due (`with_expiry_notice_due`)."""
        ...

    def with_expiry_notice_due(
        self, now: datetime, *, at_most: int, unreadable_until: datetime
    ) -> Sequence[Account | None]:
        """Return at most `at_most` active accounts whose `expiry_notice_at` has come.

        In a write unit, this call locks the accounts, and skips accounts that another unit has
        locked. In the result, None stands for an account that cannot be decoded. The notice of such
        an account is postponed to `unreadable_until`.
        """
        ...

    def page_expiring(
        self, center_id: CenterId, *, before: date, request: PageRequest
    ) -> Page[Account]:
        """Return a page of a center's active accounts that expire before a date, soonest first.

        A card expires on the last day of its expiry month. Within a month, the cards are ordered
        by age, oldest first. An account that cannot be decoded is left out of the page, but is
        included in the total.
        """
        ...

    def remove_unreadable(
        self, guest_id: GuestId, now: datetime
    ) -> Sequence[tuple[PspAccount, GuestReference, CardToken]]:
        """Remove a guest's active accounts that cannot be decoded; return their tokens.

        In a write unit, this call locks all active accounts of the guest, as `active_at` does.
        """
        ...

    def blank(self, guest_id: GuestId) -> None:
        """Apply CLEARED_PSP_IDENTIFIERS to the guest's removed accounts."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete accounts that were removed earlier than `before`, and the consents for them.

        Each call deletes a limited number of accounts, and returns how many it deleted. An account
        is kept until its token has been discarded. It is also kept while an agreement is stored
        that was made with the account, even if that agreement was moved to another account.
        """
        ...

    def search(self, wanted: AccountFilter, *, limit: int) -> Sequence[Account]:
        """Return at most `limit` accounts that meet the conditions in `wanted`, newest first.

        If `wanted` limits the expiry date, the accounts are ordered by that date, soonest first.
        Accounts that cannot be decoded are left out. The search reads every account unless `wanted`
        names a guest, or a center and a time of expiry.
        """
        ...
