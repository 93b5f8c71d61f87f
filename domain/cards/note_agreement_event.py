"""Store an event about an agreement, and its deliveries to the endpoints that subscribe to it."""

from __future__ import annotations

from datetime import datetime

from domain.agreements.agreement import Agreement
from domain.centers.configure_payments import is_live
from domain.events.event import Event, EventType
from domain.events.note_event import NoteEvent, new_event_id
from domain.identifiers import PspAccount
from domain.storage import WriteUnit


def note_agreement_event(
    unit: WriteUnit,
    note_event: NoteEvent,
    event_type: EventType,
    agreement: Agreement,
    *,
    psp_account: PspAccount | None,
    now: datetime,
) -> None:
    """Note an event about an agreement. The caller commits the unit.

    `psp_account` is the merchant account of the agreement's card, or None if it is not known.
    """
    note_event(
        unit,
        Event(
            event_id=new_event_id(note_event.ids),
            type=event_type,
            occurred_at=now,
            guest_id=agreement.guest_id,
            center_id=agreement.center_id,
            token_id=agreement.token_id,
            account_id=agreement.account_id,
            status="ended" if agreement.ended_at else "open",
            reason=agreement.reason,
            language=agreement.shown.language,
            live=None if psp_account is None else is_live(note_event.psps, psp_account),
            agreement_id=agreement.agreement_id,
            agreement_reference=agreement.terms.reference,
        ),
    )
