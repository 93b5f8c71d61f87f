"""PSP tokens that we do not keep, and must therefore be discarded at the PSP."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime

from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName, PspAccount
from domain.patience import next_try


@dataclass(frozen=True, slots=True, kw_only=True)
class Discard:
    """A token that is to be discarded, written down in the commit that decided it.

    `begun_at` is set once a process has started to discard it. From then on it can only be
    finished: whether the PSP has acted is unknown, and doing it twice is fine. Once `done_at` is
    set, `due_at` is None, and the record stays: it says that the token is dead.
    """

    provider: ProviderName
    merchant_account: MerchantAccount
    guest_reference: GuestReference
    token: CardToken
    due_at: datetime | None
    begun_at: datetime | None = None
    unanswered_since: datetime | None = None
    done_at: datetime | None = None

    @property
    def psp_account(self) -> PspAccount:
        """Where the token is."""
        return PspAccount(self.provider, self.merchant_account)

    def begun(self, now: datetime) -> Discard:
        """Note that the PSP is about to be told."""
        return replace(self, begun_at=self.begun_at or now)

    def tried_in_vain(self, now: datetime) -> Discard:
        """Note that the PSP did not answer; it is told again, less and less often."""
        since = self.unanswered_since or now
        return replace(self, unanswered_since=since, due_at=next_try(since, now))

    def done(self, now: datetime) -> Discard:
        """Note that the PSP has discarded the token."""
        return replace(self, due_at=None, unanswered_since=None, done_at=now)

    def outlasts(self, collected_at: datetime) -> bool:
        """Tell whether it was done, for the last time, after a card had been typed."""
        return self.done_at is not None and collected_at <= self.done_at

    def again(self, collected_at: datetime, now: datetime) -> Discard:
        """Note that it is to be done once more: the PSP still tells of a card with that token.

        A card that was typed after it was done is a new one. One that was typed before is dead, and
        nobody may keep it meanwhile; it goes again in case it was typed at the very moment of the
        discard, or our clock is ahead.
        """
        begun_at = self.begun_at if self.outlasts(collected_at) else None
        return replace(self, due_at=now, begun_at=begun_at, done_at=None)
