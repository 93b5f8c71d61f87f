"""PSP tokens that are not kept and must be discarded at the PSP."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import NamedTuple, Protocol

from domain.cards.account import Account
from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName, PspAccount
from domain.psps.payment_provider import UNKNOWN_FOR, is_confirmed
from domain.retries import WorkAtPsp, WorkAtPsps


class UnkeptToken(NamedTuple):
    """A token that is not kept, and when its card was collected."""

    psp_account: PspAccount
    guest_reference: GuestReference
    token: CardToken
    collected_at: datetime

    @classmethod
    def of(cls, account: Account) -> UnkeptToken:
        """Return the token that an account has held."""
        return cls(
            psp_account=account.psp_account,
            guest_reference=account.guest_reference,
            token=account.token,
            collected_at=account.consented_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(WorkAtPsp):
    """A token to discard, stored in the commit that decided to discard it.

    `begun_at` is set when a process starts the call. From then on the discard must be finished: it
    is unknown whether the PSP acted, and discarding twice is harmless. Once `done_at` is set,
    `due_at` is None; the record stays and says that the token is dead. `out_of_reach` is set if the
    discard ended because the merchant account was closed; it is None in records of an earlier
    release. `unknown_since` is the time since which the PSP has not known the token.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    guest_reference: GuestReference
    token: CardToken
    begun_at: datetime | None = None
    done_at: datetime | None = None
    out_of_reach: bool | None = None
    unknown_since: datetime | None = None

    @property
    def psp_account(self) -> PspAccount:
        """The merchant account that holds the token."""
        return PspAccount(self.provider, self.merchant_account)

    @property
    def in_progress_until(self) -> datetime | None:
        """The time of the next try, if the discard has begun and is not done; otherwise None."""
        return None if self.begun_at is None else self.due_at

    def begun(self, now: datetime) -> Discard:
        """Note that the PSP is about to be called."""
        return replace(self, begun_at=self.begun_at or now)

    def done(self, now: datetime) -> Discard:
        """Note that the PSP has discarded the token."""
        return replace(self.postponed(None), done_at=now)

    def unknown(self, now: datetime) -> Discard:
        """Note that the PSP does not know the token. Once that is confirmed, the discard is done."""
        if is_confirmed(self.unknown_since, now):
            return self.done(now)
        # A clock that was ahead may have set this time.
        since = min(self.unknown_since or now, now)
        return replace(self.postponed(since + UNKNOWN_FOR), unknown_since=since)

    def was_done_after(self, collected_at: datetime) -> bool:
        """Return whether the discard was done at or after the time at which a card was collected."""
        return self.done_at is not None and collected_at <= self.done_at

    def kills(self, collected_at: datetime) -> bool:
        """Return whether a card collected at that time is dead, or will be once the PSP answers."""
        has_begun = self.begun_at is not None and collected_at <= self.begun_at
        return has_begun or self.was_done_after(collected_at)

    def repeated(self, collected_at: datetime, now: datetime) -> Discard:
        """Schedule the discard again, because the PSP still reports a card with this token.

        A card collected after the discard is a new card. A card collected before it is dead, and
        must not be stored; its token is discarded again, in case the card was collected during the
        discard or the service's clock is ahead.
        """
        begun_at = self.begun_at if self.was_done_after(collected_at) else None
        return replace(
            self,
            due_at=now,
            begun_at=begun_at,
            done_at=None,
            out_of_reach=None,
            unknown_since=None,
        )


class Discards(WorkAtPsps, Protocol):
    """The tokens to discard at their PSP, and the tokens already discarded."""

    def add(self, discard: Discard) -> None:
        """Store a discard. If the token already has a discard, nothing changes."""
        ...

    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> Discard | None:
        """Return the discard of a token, done or not, or None.

        A write unit locks the token, as `Accounts.is_held` does.
        """
        ...

    def update(self, discard: Discard) -> None:
        """Store a discard that exists."""
        ...

    def remove(self, discard: Discard) -> None:
        """Delete a discard, because its token is stored after all or its guest was erased."""
        ...

    def left_at_psp(self, psp_account: PspAccount) -> Sequence[CardToken]:
        """Return the tokens still to be discarded at a merchant account. Locks nothing."""
        ...

    def of_guest(self, psp_account: PspAccount, reference: GuestReference) -> Sequence[Discard]:
        """Return the discards of a guest at a PSP, done or not. Locks nothing."""
        ...

    def remove_unreadable(
        self, psp_account: PspAccount, reference: GuestReference
    ) -> Sequence[CardToken]:
        """Delete a guest's discards that cannot be decoded; return their tokens."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Discard | None:
        """Lease a discard that is due; return None if no discard is due.

        A discard is due from `due_at` on; if that is later than `latest_due`, it is due after a
        wait of MAX_BACKOFF. Merchant accounts take turns, and are left out, as in
        `CardSessions.take_due`. The lease ends at `until`, which is the `due_at` of the returned
        discard. A discard that cannot be decoded is leased and skipped, so that it does not block
        the rest. The caller commits, even without a result.
        """
        ...
