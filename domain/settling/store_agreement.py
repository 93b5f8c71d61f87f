"""Store an agreement, and end the agreements that it replaces."""

from __future__ import annotations

from datetime import datetime

from domain.agreements.agreement import Agreement, EndOfAgreement
from domain.cards.end_agreements import end_agreement
from domain.cards.note_agreement_event import note_agreement_event
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.identifiers import PspAccount
from domain.storage import WriteUnit


def store_agreement(
    unit: WriteUnit,
    note_event: NoteEvent,
    agreement: Agreement,
    *,
    psp_account: PspAccount,
    now: datetime,
) -> None:
    """Store a new agreement, and end the agreements that it replaces.

    One event is noted for the new agreement, and one for each agreement that this call ends. Only
    the latest agreement about a booking stays open. If the PSP reported the card late, a later
    agreement may be stored already. In this case, `agreement` is stored as ended. `psp_account` is
    the merchant account of the agreement's card.

    The caller has already stored the card's account and locked the guest's cards. The caller also
    commits the unit.
    """
    unit.agreements.add(agreement)
    note_agreement_event(
        unit,
        note_event,
        EventType.AGREEMENT_ADDED,
        agreement,
        psp_account=psp_account,
        now=now,
    )
    of_guest = unit.agreements.of_guest(agreement.guest_id)
    booking = agreement.center_id, agreement.terms.reference
    same = [each for each in of_guest if (each.center_id, each.terms.reference) == booking]
    last = max(same, key=lambda each: (each.agreed_at, each.agreement_id == agreement.agreement_id))
    for each in of_guest:
        is_replaced = each in same and each.agreement_id != last.agreement_id
        if is_replaced or each.agreement_id == agreement.terms.replaces:
            end_agreement(unit, note_event, each, EndOfAgreement.REPLACED, now)
