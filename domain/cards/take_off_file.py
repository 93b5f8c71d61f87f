"""Remove a card from file. All kinds of removal share this step."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from domain.cards.account import Account, heir_among
from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.cards.note_account_event import note_account_event
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.storage import WriteUnit


def take_off_file(
    unit: WriteUnit,
    note_event: NoteEvent,
    account: Account,
    others: Sequence[Account],
    *,
    reason: str | None = None,
    by: str | None = None,
    now: datetime,
) -> Account:
    """Remove an active account, and return its state after the removal.

    The discard of its token is scheduled, and an event is noted. If the account was the default,
    the newest of `others`, the guest's other active accounts at the center, becomes the default.
    `reason` and `by` are as in `note_account_event`. The caller has locked the accounts, and
    commits the unit.
    """
    removed = account.removed(now)
    unit.accounts.update(removed)
    heir = heir_among(others)
    if heir is not None:
        unit.accounts.update(heir)
    note_discard(unit, UnkeptToken.of(account), now=now)
    note_account_event(
        unit, note_event, EventType.ACCOUNT_REMOVED, removed, reason=reason, by=by, now=now
    )
    return removed
