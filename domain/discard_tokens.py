"""Discard the PSP tokens that we do not keep, and none that an active account holds."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime

from domain.discards import Discard
from domain.identifiers import CardToken, GuestReference, MerchantAccount, ProviderName, PspAccount
from domain.patience import GIVEN_BACK_AFTER
from domain.payment_accounts import PaymentAccount
from domain.ports import (
    Clock,
    ProviderRefused,
    Providers,
    ProviderUnavailable,
    Storage,
    UnitOfWork,
    WriteUnit,
)


def note_discard(
    unit: WriteUnit,
    provider: ProviderName,
    merchant_account: MerchantAccount,
    guest_reference: GuestReference,
    token: CardToken,
    *,
    collected_at: datetime,
    now: datetime,
) -> None:
    """Write down that the token of what was typed at that time is to be discarded.

    Not if an active account holds it, or it is written down already: some PSPs answer with the same
    token when the same card is stored again.
    """
    if unit.accounts.is_held(provider, merchant_account, token):
        return
    noted = unit.discards.get(provider, merchant_account, token)
    if noted is None:
        unit.discards.add(
            Discard(
                provider=provider,
                merchant_account=merchant_account,
                guest_reference=guest_reference,
                token=token,
                due_at=now,
            )
        )
    elif noted.done_at is not None:
        unit.discards.update(noted.again(collected_at, now))


def note_discard_of(unit: WriteUnit, account: PaymentAccount, *, now: datetime) -> None:
    """Write down that the token is to be discarded which an account has held until now."""
    note_discard(
        unit,
        account.provider,
        account.merchant_account,
        account.guest_reference,
        account.token,
        collected_at=account.consented_at,
        now=now,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardToken:
    """Use case: discard a token at its PSP, once it has been taken.

    A PSP that does not answer is told again later, less and less often.
    """

    storage: Storage
    providers: Providers
    clock: Clock

    def take(self, *, except_at: Collection[PspAccount] = ()) -> Discard | None:
        """Take the discard that has been due the longest; from now on it can only be finished.

        Those of the merchant accounts `except_at` are left where they are. Nothing is written when
        none is due.
        """
        now = self.clock.now()
        with self.storage.read() as unit:
            if not unit.discards.is_any_due(now, except_at=except_at):
                return None

        def take(unit: WriteUnit) -> Discard | None:
            discard = unit.discards.take_due(now, until=now + GIVEN_BACK_AFTER, except_at=except_at)
            if discard is not None:
                discard = discard.begun(now)
                unit.discards.update(discard)
            unit.commit()
            return discard

        return self.storage.transact(take)

    def __call__(self, discard: Discard) -> Discard:
        """Tell the PSP, unless it is no longer ours to do; gives the discard as it is then."""
        with self.storage.read() as unit:
            if not _is_ours(unit, discard):
                return discard
        try:
            self.providers[discard.provider].discard(
                discard.merchant_account, discard.guest_reference, discard.token
            )
        except (ProviderUnavailable, ProviderRefused):
            changed = discard.tried_in_vain(self.clock.now())
        else:
            changed = discard.done(self.clock.now())

        def keep(unit: WriteUnit) -> None:
            if _is_ours(unit, discard):
                unit.discards.update(changed)
                unit.commit()

        self.storage.transact(keep)
        return changed


def _is_ours(unit: UnitOfWork, taken: Discard) -> bool:
    """Tell whether nobody else took the discard over, after a pause longer than the lease."""
    current = unit.discards.get(taken.provider, taken.merchant_account, taken.token)
    is_held = unit.accounts.is_held(taken.provider, taken.merchant_account, taken.token)
    return current == taken and not is_held
