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
    """Store a new agreement, and end those that are replaced, each with its event.

    A booking has one open agreement: the agreement to which the guest agreed last. If a card is
    reported late, a later agreement may already be stored; then `agreement` ends. `psp_account` is
    the merchant account of the agreement's card. The caller stores the card's account first, holds
    the locks on the guest's cards, and commits.
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
