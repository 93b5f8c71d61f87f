"""Remove a card on file."""

from __future__ import annotations

from dataclasses import dataclass

from domain.discard_tokens import note_discard_of_account
from domain.events import EventType
from domain.note_event import note_account_event
from domain.permissions import MAY_REMOVE_CARDS, Caller
from domain.ports import Clock, Ids, Storage, WriteUnit
from domain.read_account import active_account


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccount:
    """Use case: remove an active payment account of a guest.

    The same commit notes the discard of its token at the PSP. Raises UserNotAuthorized, or
    PaymentAccountNotFound, also when it is removed already.
    """

    storage: Storage
    clock: Clock
    ids: Ids

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> None:
        """Remove the account and note the discard."""
        caller.require(MAY_REMOVE_CARDS)
        now = self.clock.now()

        def remove(unit: WriteUnit) -> None:
            account = active_account(unit, caller, guest_id=guest_id, account_id=account_id)
            removed = account.removed(now)
            unit.accounts.update(removed)
            note_discard_of_account(unit, account, now=now)
            note_account_event(unit, self.ids, EventType.ACCOUNT_REMOVED, removed, now=now)
            unit.commit()

        self.storage.transact(remove)
