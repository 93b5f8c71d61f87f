"""Tokens of cards that are not kept, and that must be discarded at the PSP."""

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
    """A token that is not kept on file, and the time at which the token's card was collected."""

    psp_account: PspAccount
    guest_reference: GuestReference
    token: CardToken
    collected_at: datetime

    @classmethod
    def of(cls, account: Account) -> UnkeptToken:
        """Return the token of an account."""
        return cls(
            psp_account=account.psp_account,
            guest_reference=account.guest_reference,
            token=account.token,
            collected_at=account.consented_at,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard(WorkAtPsp):
    """A token to discard. It is stored in the same commit as the decision to discard the token.

    `begun_at` is set when a process first calls the PSP. From then on, the discard must be
    finished, because the PSP may have acted on the call. Discarding a token twice is harmless. When
    the discard is done, `done_at` is set and `due_at` is None. The record then stays stored as
    proof that the token can no longer be charged.

    `out_of_reach` is whether the discard ended because the merchant account was closed. It is None
    in records from an earlier release. `unknown_since` is when the PSP first answered that it does
    not know the token, provided that every answer from then on was the same.
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
        """The merchant account at which the PSP has stored the token."""
        return PspAccount(self.provider, self.merchant_account)

    @property
    def in_progress_until(self) -> datetime | None:
        """The time of the next attempt if the discard has begun and is not done, otherwise None."""
        return None if self.begun_at is None else self.due_at

    def begun(self, now: datetime) -> Discard:
        """Return a copy of this discard that has begun. Call this before the PSP is called."""
        return replace(self, begun_at=self.begun_at or now)

    def done(self, now: datetime) -> Discard:
        """Return a copy of this discard that was done at `now` and is no longer due."""
        return replace(self.postponed(None), done_at=now)

    def unknown(self, now: datetime) -> Discard:
        """Return a copy of this discard that records that the PSP does not know the token.

        If the PSP first gave this answer at least UNKNOWN_FOR ago, the copy is done. If not, the
        PSP is asked once more at the end of that time.
        """
        if is_confirmed(self.unknown_since, now):
            return self.done(now)
        # This time may come from a clock that was ahead.
        since = min(self.unknown_since or now, now)
        return replace(self.postponed(since + UNKNOWN_FOR), unknown_since=since)

    def was_done_after(self, collected_at: datetime) -> bool:
        """Return whether the discard was done at `collected_at` or later."""
        return self.done_at is not None and collected_at <= self.done_at

    def invalidates(self, collected_at: datetime) -> bool:
        """Return whether this discard invalidates a card that was collected at `collected_at`.

        It does so if the discard began at that time or later, or was done at that time or later.
        """
        has_begun = self.begun_at is not None and collected_at <= self.begun_at
        return has_begun or self.was_done_after(collected_at)

    def repeated(self, collected_at: datetime, now: datetime) -> Discard:
        """Return a copy of this discard that is due at `now`, so that it is done once more.

        Call this if this discard is done, but the PSP reports a card that has the same token and
        that no account contains. `collected_at` is when the card was collected.

        If the card was collected after this discard was done, the card is new and may be stored.
        The copy then has no `begun_at`, like a discard that has not begun.

        Otherwise, the card must not be stored, so the copy keeps `begun_at`. The token is still
        discarded once more, because the card may have been collected while the discard was in
        progress, or the service's clock may be ahead.
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
    """Repository of discards, including those that are done."""

    def add(self, discard: Discard) -> None:
        """Store a discard. If the token already has a discard, nothing changes."""
        ...

    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> Discard | None:
        """Return the discard of a token, done or not, or None if the token has no discard.

        In a write unit, this call locks the token, as `Accounts.is_held` does.
        """
        ...

    def update(self, discard: Discard) -> None:
        """Replace a stored discard."""
        ...

    def remove(self, discard: Discard) -> None:
        """Delete a discard.

        This is done if the token is kept on file after all, or when the guest is erased.
        """
        ...

    def pending_at_psp(self, psp_account: PspAccount) -> Sequence[CardToken]:
        """Return the tokens that are yet to be discarded at a merchant account.

        The discards are not locked.
        """
        ...

    def of_guest(self, psp_account: PspAccount, reference: GuestReference) -> Sequence[Discard]:
        """Return the discards of a guest at a PSP, done or not. They are not locked."""
        ...

    def remove_unreadable(
        self, psp_account: PspAccount, reference: GuestReference
    ) -> Sequence[CardToken]:
        """Delete a guest's discards that cannot be decoded, and return their tokens."""
        ...

    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Discard | None:
        """Lease a discard that is due and return it, or return None if no discard is due.

        A discard is due from `due_at` on. If `due_at` is later than what `latest_due` returns for
        the longest wait (MAX_BACKOFF), a wrong clock has set it, and the discard is due at once. As
        in `CardSessions.take_due`, merchant accounts take turns, and those in `except_at` are left
        out. The lease ends at `until`, which is the `due_at` of the returned discard.

        A discard that cannot be decoded is leased and skipped, so that it does not block the
        others. The caller must therefore commit even if the result is None.
        """
        ...
