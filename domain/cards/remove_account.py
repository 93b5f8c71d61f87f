"""Remove a card on file."""

from __future__ import annotations

from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.cards.find_account import account_with, active_account, lock_account
from domain.cards.take_off_file import take_off_file
from domain.events.note_event import NoteEvent
from domain.outside import Clock
from domain.permissions import MAY_REMOVE_CARDS, Caller
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccount:
    """Use case: remove a guest's active payment account.

    The same commit schedules the discard of the account's token at the PSP. If the account was the
    default, the newest remaining account becomes the default. Without a caller, the operator
    removes the account, and `guest_id` is ignored. Raises UserNotAuthorized. Raises
    PaymentAccountNotFound, also if the account is already removed.
    """

    needs = MAY_REMOVE_CARDS

    storage: Storage
    clock: Clock
    note_event: NoteEvent
    note_act: NoteAct

    def __call__(self, caller: Caller | None, *, account_id: str, guest_id: str = "") -> Account:
        """Remove the account, and return its state after the removal."""
        if caller is not None:
            caller.require(self.needs)
        with self.storage.read() as reading:
            if caller is None:
                found = account_with(reading, account_id)
            else:
                found = active_account(reading, caller, guest_id=guest_id, account_id=account_id)
        now = self.clock.now()

        def remove(unit: WriteUnit) -> Account:
            account, others = lock_account(unit, found)
            removed = take_off_file(unit, self.note_event, account, others, now=now)
            details = {"guest": removed.guest_id, "center": removed.center_id}
            self.note_act(unit, Action.CARD_REMOVED, removed.account_id, details, caller=caller)
            unit.commit()
            return removed

        return self.storage.transact(remove)
