"""Discard the PSP tokens that we do not keep, and none that an active account holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final

from domain.discards import Discard
from domain.identifiers import MerchantAccount, ProviderName
from domain.payment_accounts import Card
from domain.ports import (
    Clock,
    ProviderRefused,
    Providers,
    ProviderUnavailable,
    Storage,
    UnitOfWork,
)

GIVEN_BACK_AFTER: Final = timedelta(minutes=1)
"""When work that a process took and did not finish is taken by another."""


def note_discard(
    unit: UnitOfWork,
    provider: ProviderName,
    merchant_account: MerchantAccount,
    card: Card,
    now: datetime,
) -> None:
    """Write down that a card's token is to be discarded, unless an active account holds it.

    Some PSPs answer with the same token when the same card is stored again.
    """
    if not unit.accounts.is_held(provider, merchant_account, card.token):
        unit.discards.add(
            Discard(
                provider=provider,
                merchant_account=merchant_account,
                guest_reference=card.guest_reference,
                token=card.token,
                due_at=now,
            )
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardToken:
    """Use case: discard a token at its PSP, once it has been taken.

    A PSP that does not answer is tried again later, less and less often.
    """

    storage: Storage
    providers: Providers
    clock: Clock

    def take(self) -> Discard | None:
        """Take the discard that has been due the longest; from now on it can only be finished."""
        now = self.clock.now()
        with self.storage.write() as unit:
            discard = unit.discards.take_due(now, until=now + GIVEN_BACK_AFTER)
            if discard is None:
                return None
            discard = replace(discard, begun_at=discard.begun_at or now)
            unit.discards.update(discard)
            unit.commit()
        return discard

    def __call__(self, discard: Discard) -> None:
        """Tell the PSP, and strike the discard out once it has answered."""
        try:
            self.providers[discard.provider].discard(
                discard.merchant_account, discard.guest_reference, discard.token
            )
        except (ProviderUnavailable, ProviderRefused):
            with self.storage.write() as unit:
                unit.discards.update(discard.tried_in_vain(self.clock.now()))
                unit.commit()
        else:
            with self.storage.write() as unit:
                unit.discards.remove(discard)
                unit.commit()
