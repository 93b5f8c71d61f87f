"""Choose a guest's default card at a center."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from domain.cards.account import Account
from domain.cards.find_account import active_account, lock_account
from domain.permissions import MAY_ADD_CARDS, Caller
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ChooseDefaultCard:
    """Use case: make a guest's active payment account the default at its center.

    The former default is then an ordinary card. Choosing the current default changes nothing.
    Raises UserNotAuthorized or PaymentAccountNotFound.
    """

    needs = MAY_ADD_CARDS

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> None:
        caller.require(self.needs)
        with self.storage.read() as reading:
            found = active_account(reading, caller, guest_id=guest_id, account_id=account_id)

        def choose(unit: WriteUnit) -> None:
            account, others = lock_account(unit, found)
            if make_default(unit, account, others) is not None:
                unit.commit()

        self.storage.transact(choose)


def make_default(unit: WriteUnit, account: Account, others: Sequence[Account]) -> Account | None:
    """Make the card `account` the default, and return its state after the change.

    If one of the `others` was the default, that card is no longer the default. Return None if
    `account` already is the default. The caller has locked all of the cards, and commits the unit.
    """
    if account.is_default:
        return None
    # The former default is changed first, because the storage refuses two defaults even within a
    # unit.
    for other in others:
        if other.is_default:
            unit.accounts.update(replace(other, is_default=False))
    chosen = replace(account, is_default=True)
    unit.accounts.update(chosen)
    return chosen
