"""Store an agreement, and end the agreements that it replaces."""

from __future__ import annotations

from collections.abc import Sequence
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
    """Store a new agreement and end those that it replaces, each with its event.

    `psp_account` is where the agreement's card is. Store the account first. The caller commits.
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
    for former in _replaced_by(unit, agreement):
        end_agreement(unit, note_event, former, EndOfAgreement.REPLACED, now)


def _replaced_by(unit: WriteUnit, agreement: Agreement) -> Sequence[Agreement]:
    """Return the agreements that end because of a new one: one booking has one agreement."""
    terms = agreement.terms
    named = unit.agreements.get(terms.replaces) if terms.replaces else None
    same = [
        each
        for each in unit.agreements.of_account(agreement.account_id)
        if each.terms.reference == terms.reference and each.agreement_id != agreement.agreement_id
    ]
    if named is not None and named.guest_id == agreement.guest_id:
        same.append(named)
    return [each for each in same if each.ended_at is None]
