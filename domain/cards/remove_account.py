"""Remove a card on file."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.cards.account import Account, has_default
from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.cards.find_account import account_with, active_account, lock_account
from domain.cards.note_account_event import note_account_event
from domain.events.event import EventType
from domain.outside import Clock, Ids
from domain.permissions import MAY_REMOVE_CARDS, Caller
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccount:
    """Use case: remove an active payment account of a guest.

    The same commit notes the discard of its token at the PSP and, if it was the default, makes the
    guest's newest account left at the center the default. Raises UserNotAuthorized, or
    PaymentAccountNotFound, also when it is removed already.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    note_act: NoteAct

    def __call__(self, caller: Caller, *, guest_id: str, account_id: str) -> None:
        caller.require(MAY_REMOVE_CARDS)
        with self.storage.read() as reading:
            found = active_account(reading, caller, guest_id=guest_id, account_id=account_id)
        self.remove(found, caller=caller)

    def remove(self, found: Account, *, caller: Caller | None) -> None:
        """Remove an account; without a caller, the operator does. Raises PaymentAccountNotFound."""
        now = self.clock.now()

        def remove(unit: WriteUnit) -> None:
            account, others = lock_account(unit, found)
            removed = account.removed(now)
            unit.accounts.update(removed)
            if others and not has_default(others):
                unit.accounts.update(replace(others[-1], is_default=True))
            note_discard(unit, UnkeptToken.of(account), now=now)
            note_account_event(unit, self.ids, EventType.ACCOUNT_REMOVED, removed, now=now)
            self.note_act(
                unit,
                Action.CARD_REMOVED,
                removed.account_id,
                {"guest": removed.guest_id, "center": removed.center_id},
                caller=caller,
            )
            unit.commit()

        self.storage.transact(remove)


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveCard:
    """Use case: do the same for an operator, with an active account of any guest.

    Returns it as it was. Raises PaymentAccountNotFound, also when it is removed already.
    """

    storage: Storage
    remove_account: RemoveAccount

    def __call__(self, account_id: str) -> Account:
        with self.storage.read() as reading:
            found = account_with(reading, account_id)
        self.remove_account.remove(found, caller=None)
        return found
