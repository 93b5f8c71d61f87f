"""Read what the guest agreed to when a card on file was stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.cards.account import Account
from domain.cards.consent import GivenConsent
from domain.cards.find_account import active_account
from domain.permissions import MAY_VIEW_CARDS, Caller
from domain.storage import Storage, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadConsent:
    """Use case: return the consents of an active payment account of a guest.

    The one that applies is first, then those from before each renewal, newest first. Raises
    UserNotAuthorized, or PaymentAccountNotFound as `ReadAccount` does.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> Sequence[GivenConsent]:
        caller.require(self.needs)
        with self.storage.read() as unit:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
            return consents_of(unit, account)


def consents_of(unit: UnitOfWork, account: Account) -> Sequence[GivenConsent]:
    """Return the consents of an account: the one that applies, then those from before renewals."""
    without_text = GivenConsent(
        account_id=account.account_id,
        token_id=account.token_id,
        version=account.consent_version,
        agreed_at=account.consented_at,
    )
    return unit.consents.of(account) or [without_text]
