"""Remove a card on file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.discard_tokens import note_discard_of_account
from domain.permissions import MAY_REMOVE_CARDS, Caller
from domain.ports import Clock, Storage, WriteUnit
from domain.read_account import active_account


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccount:
    """Use case: remove an active payment account of a guest.

    The same commit notes the discard of its token at the PSP. Raises UserNotAuthorized, or
    PaymentAccountNotFound, also when it is removed already.
    """

    storage: Storage
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> None:
        """Remove the account and note the discard."""
        caller.require(MAY_REMOVE_CARDS)
        now = self.clock.now()

        def remove(unit: WriteUnit) -> None:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
            unit.accounts.update(replace(account, removed_at=now))
            note_discard_of_account(unit, account, now=now)
            unit.commit()

        self.storage.transact(remove)
