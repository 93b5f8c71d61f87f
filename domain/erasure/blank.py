"""End what is under way for an erased guest, and blank what is known of the person."""

from __future__ import annotations

from datetime import datetime

from domain.cards.account import AccountFilter
from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.cards.note_account_event import note_account_event
from domain.events.event import EventType
from domain.identifiers import GuestId
from domain.outside import Ids
from domain.pagination import ALL
from domain.storage import WriteUnit


def end_and_blank(unit: WriteUnit, ids: Ids, guest_id: GuestId, now: datetime) -> bool:
    """Remove the guest, end the open sessions, remove the cards, and blank what that does not need.

    A session that is not over keeps what its PSP is asked with: the page's parameters, evidence, and
    `redirect_uri`. Return whether all sessions are over. May be called again. The caller commits.
    """
    # Also again: on PostgreSQL a guest may be stored while the erasure is.
    unit.guests.remove(guest_id)
    are_over = True
    for token_id in sorted(unit.sessions.of_guest(guest_id)):
        session = unit.sessions.get(token_id)
        if session is None:
            continue
        blank = session.cancelled(now).without_personal_data()
        if blank != session:
            unit.sessions.update(blank)
        if blank.is_over:
            unit.evidence.remove(token_id)
        are_over = are_over and blank.is_over
    active = AccountFilter(guest_id=guest_id, only_active=True)
    centers = {account.center_id for account in unit.accounts.search(active, limit=ALL)}
    for center_id in sorted(centers):
        for account in unit.accounts.active_at(guest_id, center_id):
            removed = account.removed(now)
            unit.accounts.update(removed)
            note_discard(unit, UnkeptToken.of(account), now=now)
            note_account_event(unit, ids, EventType.ACCOUNT_REMOVED, removed, now=now)
    return are_over
