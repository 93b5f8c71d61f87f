"""Note that a session ended without a card, for endpoints that subscribe to such events."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from domain.centers.configure_payments import is_live
from domain.events.event import Event, EventType
from domain.events.note_event import NoteEvent, new_event_id
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from domain.storage import WriteUnit

_EVENTS: Final = {
    SessionStatus.FAILED: EventType.SESSION_FAILED,
    SessionStatus.EXPIRED: EventType.SESSION_EXPIRED,
}


def note_end_of_session(
    unit: WriteUnit,
    note_event: NoteEvent,
    before: CardSession,
    after: CardSession,
    *,
    now: datetime,
) -> None:
    """Note that a session just ended without a card, if it did. The caller commits."""
    event_type = _EVENTS.get(after.status)
    if event_type is None or after.status is before.status:
        return
    note_event(
        unit,
        Event(
            event_id=new_event_id(note_event.ids),
            type=event_type,
            occurred_at=now,
            guest_id=after.guest_id,
            center_id=after.center_id,
            token_id=after.token_id,
            existing_account_id=after.existing_account_id,
            status=after.status.value,
            reason=after.reason_of_end,
            reference=after.reference,
            live=is_live(note_event.psps, after.configuration.psp_account),
        ),
    )
