"""Store an event about a session, and its deliveries to the endpoints that subscribe to it."""

from __future__ import annotations

from datetime import datetime

from domain.centers.configure_payments import is_live
from domain.events.event import Event, EventType
from domain.events.note_event import NoteEvent, new_event_id
from domain.sessions.session import CardSession
from domain.storage import WriteUnit


def note_session_event(
    unit: WriteUnit,
    note_event: NoteEvent,
    event_type: EventType,
    session: CardSession,
    *,
    reason: str | None = None,
    now: datetime,
) -> None:
    """Note an event about the present state of a session. The caller commits the unit."""
    note_event(
        unit,
        Event(
            event_id=new_event_id(note_event.ids),
            type=event_type,
            occurred_at=now,
            guest_id=session.guest_id,
            center_id=session.center_id,
            token_id=session.token_id,
            existing_account_id=session.existing_account_id,
            status=session.status.value,
            reason=reason,
            reference=session.reference,
            live=is_live(note_event.psps, session.configuration.psp_account),
        ),
    )
