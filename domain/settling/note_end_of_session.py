"""Note the event about a session that has ended without a card."""

from __future__ import annotations

from datetime import datetime
from typing import Final

from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.sessions.end import SessionStatus
from domain.sessions.note_session_event import note_session_event
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
    """Note the event if the change from `before` to `after` ended the session without a card.

    `before` and `after` are two states of the session. The caller commits the unit.
    """
    event_type = _EVENTS.get(after.status)
    if event_type is None or after.status is before.status:
        return
    note_session_event(unit, note_event, event_type, after, reason=after.reason_of_end, now=now)
