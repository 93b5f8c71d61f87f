"""Remove cards whose last agreement has ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from domain.cards.account import Account
from domain.cards.find_account import lock_account
from domain.cards.take_off_file import take_off_file
from domain.errors import PaymentAccountNotFound
from domain.events.note_event import NoteEvent
from domain.outside import Clock
from domain.storage import Storage, WriteUnit, do_due

AGREEMENT_ENDED: Final = "agreement_ended"
"""The `reason` in the event about a card that was removed because its last agreement ended."""
MAX_PER_CALL: Final = 100
"""The maximum number of cards that one call removes. During a call, the worker's other tasks
wait.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveEndedCards:
    """Use case: remove a limited number of cards whose `keep_until` has passed.

    Each card is removed in a separate commit, together with its event and the discard of its token.
    If any card of a guest cannot be decoded, the guest's cards stay. May be called at any time,
    also by several processes at once. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock
    note_event: NoteEvent

    def __call__(self) -> bool:
        """Remove cards, and return whether more cards may be due.

        Does nothing while the clock is not steady, because a removal cannot be undone.
        """
        if not self.clock.is_steady():
            return False
        now = self.clock.now()
        return do_due(
            self.storage,
            lambda unit, skip: unit.accounts.due_for_removal(now, at_most=MAX_PER_CALL, skip=skip),
            self._remove,
            at_most=MAX_PER_CALL,
        )

    def _remove(self, found: Account, unit: WriteUnit) -> None:
        try:
            account, others = lock_account(unit, found)
        except PaymentAccountNotFound:
            # The card was removed or moved to another guest meanwhile. The next call finds a moved
            # card.
            return
        now = self.clock.now()
        if account.keep_until is not None and account.keep_until < now:
            take_off_file(unit, self.note_event, account, others, reason=AGREEMENT_ENDED, now=now)
            unit.commit()
