"""Notify endpoints that cards will expire soon."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from domain.cards.account import READ_BEFORE_NOTICE, Account
from domain.cards.note_account_event import note_account_event
from domain.centers.configure_payments import LoadedPsp, reads_cards
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.identifiers import ProviderName
from domain.outside import Clock
from domain.storage import Storage, WriteUnit

MAX_PER_UNIT: Final = 100
MAX_UNITS: Final = 10
"""The maximum number of units that one call commits. It is small because other events wait during a
call, and the notices of all cards that expire in a month are due on the same day.
"""
POSTPONE_BY: Final = timedelta(hours=1)
WAIT_FOR_PSP: Final = timedelta(days=3)
UNREADABLE_FOR: Final = timedelta(days=1)
"""How long the notice of an account that cannot be decoded is postponed, so that the account does
not stay first in the queue.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeExpiry:
    """Use case: note an `account.expiring` event 30 and 7 days before a card's last day.

    Each event is noted once, even if several processes call this at once. A card that is stored or
    renewed in its last 30 days gets only the second event. A late call still notes the event,
    unless the card has expired. The bank may have renewed the card, so an event waits for a recent
    reading of the card at its PSP, for 3 days at most. Raises ServiceUnavailable.
    """

    storage: Storage
    psps: Mapping[ProviderName, LoadedPsp]
    clock: Clock
    note_event: NoteEvent

    def __call__(self) -> bool:
        """Note a limited number of due events, and return whether more may be due.

        Does nothing while the clock is not steady, because a clock that is ahead would skip
        notices.
        """
        if not self.clock.is_steady():
            return False
        now = self.clock.now()

        def note(unit: WriteUnit) -> int:
            accounts = unit.accounts.with_expiry_notice_due(
                now, at_most=MAX_PER_UNIT, unreadable_until=now + UNREADABLE_FOR
            )
            for account in filter(None, accounts):
                days = account.days_of_expiry_notice(now)
                if days is not None and self._waits(account, days, now):
                    unit.accounts.update(
                        account.with_expiry_notice_postponed(now + POSTPONE_BY, now)
                    )
                    continue
                # An earlier release, which may still be running, leaves the time of a notice when
                # it removes a card.
                if days is not None and account.removed_at is None:
                    note_account_event(
                        unit,
                        self.note_event,
                        EventType.ACCOUNT_EXPIRING,
                        account,
                        reason=f"expires_in_{days}_days",
                        now=now,
                    )
                unit.accounts.update(account.after_expiry_notice(now))
            unit.commit()
            return len(accounts)

        with self.storage.read() as unit:
            if not unit.accounts.is_expiry_notice_due(now):
                return False
        return all(self.storage.transact(note) for _ in range(MAX_UNITS))

    def _waits(self, account: Account, days: int, now: datetime) -> bool:
        """Return whether the event must wait for a more recent reading of the card."""
        due_at = account.last_day - timedelta(days=days)
        is_fresh = account.state_as_of >= due_at - READ_BEFORE_NOTICE[0]
        can_read = reads_cards(self.psps, account.psp_account)
        return can_read and not is_fresh and now < due_at + WAIT_FOR_PSP
