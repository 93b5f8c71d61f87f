"""Discard tokens of cards that are not kept. The token of an active account is not discarded."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace
from datetime import datetime

from domain.cards.discard import Discard, UnkeptToken
from domain.identifiers import PspAccount
from domain.outside import Clock
from domain.psps.payment_provider import (
    NotFound,
    ProviderRefused,
    Providers,
    ProviderUnavailable,
)
from domain.retries import LEASE
from domain.storage import Storage, UnitOfWork, WriteUnit, take_due


def note_discard(unit: WriteUnit, unkept: UnkeptToken, *, now: datetime) -> bool:
    """Schedule the discard of a token, unless it belongs to an active account.

    Return whether a new discard was stored. The caller commits the unit.
    """
    # Some PSPs return the same token when the same card is stored again, so an active account may
    # hold it.
    if unit.accounts.is_held(*unkept.psp_account, unkept.token):
        return False
    noted = unit.discards.get(*unkept.psp_account, unkept.token)
    if noted is None:
        provider, merchant_account = unkept.psp_account
        discard = Discard(
            provider=provider,
            merchant_account=merchant_account,
            guest_reference=unkept.guest_reference,
            token=unkept.token,
            due_at=now,
        )
        unit.discards.add(discard)
    elif noted.done_at is not None:
        unit.discards.update(noted.repeated(unkept.collected_at, now))
    return noted is None


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardToken:
    """Use case: discard a leased token at its PSP.

    If the PSP does not respond, or may not know the token yet, the discard is retried later. If the
    merchant account is closed, the discard ends with `out_of_reach`.
    """

    storage: Storage
    providers: Providers
    clock: Clock

    def take(self, *, except_at: Collection[PspAccount] = ()) -> Discard | None:
        """Lease a discard that is due and return it, or return None if no discard is due.

        The lease lasts one minute. The discard is stored as begun, so it must be finished even if
        this process dies before it calls the PSP. Merchant accounts take turns, and those in
        `except_at` are left out. If no discard is due, nothing is written.
        """
        now = self.clock.now()

        def begin(unit: WriteUnit) -> Discard | None:
            discard = unit.discards.take_due(now, until=now + LEASE, except_at=except_at)
            if discard is not None:
                discard = discard.begun(now)
                unit.discards.update(discard)
            return discard

        return take_due(
            self.storage, lambda unit: unit.discards.is_any_due(now, except_at=except_at), begin
        )

    def __call__(self, discard: Discard) -> Discard:
        """Call the PSP, and return the updated discard.

        The PSP is not called, and `discard` is returned unchanged, if another process has taken
        over the discard, or if an active account now has the token.
        """
        with self.storage.read() as unit:
            if not _is_ours(unit, discard):
                return discard
            is_closed = unit.merchant_standings.of(discard.psp_account).is_closed
        try:
            if not is_closed:
                self.providers[discard.provider].discard(
                    discard.merchant_account, discard.guest_reference, discard.token
                )
        except NotFound:
            changed = discard.unknown(self.clock.now())
        except (ProviderUnavailable, ProviderRefused):
            changed = discard.psp_unavailable(self.clock.now())
        else:
            changed = discard.done(self.clock.now())
            if is_closed:
                changed = replace(changed, out_of_reach=True)

        def keep(unit: WriteUnit) -> None:
            if _is_ours(unit, discard):
                unit.discards.update(changed)
                unit.commit()

        self.storage.transact(keep)
        return changed


def _is_ours(unit: UnitOfWork, taken: Discard) -> bool:
    """Return whether this process still holds the lease, and no active account has the token."""
    current = unit.discards.get(taken.provider, taken.merchant_account, taken.token)
    is_held = unit.accounts.is_held(taken.provider, taken.merchant_account, taken.token)
    return current == taken and not is_held
