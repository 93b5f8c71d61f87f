"""Read one card on file."""

from __future__ import annotations

from dataclasses import dataclass

from domain.cards.account import Account
from domain.cards.find_account import active_account
from domain.permissions import MAY_USE_CARDS, MAY_VIEW_CARDS, Caller
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class AccountForCaller:
    """A payment account, and whether the caller may see what a payment operation needs of it."""

    account: Account
    may_charge: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadAccount:
    """Use case: return an active payment account of a guest.

    Callers that may use cards may see its payment reference too. Raises UserNotAuthorized, or
    PaymentAccountNotFound when the guest has no such active account in a center that the caller may
    see.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> AccountForCaller:
        caller.require(self.needs)
        with self.storage.read() as unit:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
        return AccountForCaller(account=account, may_charge=caller.may(MAY_USE_CARDS))
