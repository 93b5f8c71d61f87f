"""Tell the endpoints of cards that expire soon."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from domain.cards.note_account_event import note_account_event
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.outside import Clock
from domain.storage import Storage, WriteUnit

MAX_PER_UNIT: Final = 100
UNREADABLE_FOR: Final = timedelta(days=1)
"""When an account that cannot be decoded is tried again, so that it does not stay the first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NoticeExpiry:
    """Use case: note an `account.expiring` event 30 and 7 days before a card's last day.

    Each once, however often this is called and by how many processes. A card that was stored or
    renewed later than 30 days before gets the second only. If this was not called in time, the
    notice is late, and none is sent of a card that has expired. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock
    note_event: NoteEvent

    def __call__(self) -> None:
        """Note all that are due, a bounded number in each unit of work.

        None while the clock is not steady: one that is ahead would skip notices.
        """
        if not self.clock.is_steady():
            return
        now = self.clock.now()

        def note(unit: WriteUnit) -> int:
            accounts = unit.accounts.with_expiry_notice_due(
                now, at_most=MAX_PER_UNIT, unreadable_until=now + UNREADABLE_FOR
            )
            for account in filter(None, accounts):
                days = account.days_of_expiry_notice(now)
                # A release before this one, which may still be running, keeps the time of a notice
                # when it removes a card.
                if days is not None and account.removed_at is None:
                    note_account_event(
                        unit,
                        self.note_event,
                        EventType.ACCOUNT_EXPIRING,
                        account,
                        reason=f"expires_in_{days}_days",
                        now=now,
                    )
                unit.accounts.update(
                    replace(account, expiry_notice_at=account.next_expiry_notice(now))
                )
            unit.commit()
            return len(accounts)

        with self.storage.read() as unit:
            if not unit.accounts.is_expiry_notice_due(now):
                return
        while self.storage.transact(note):
            pass
