"""End the open work for an erased guest, and clear personal data that is no longer needed."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from domain.cards.account import AccountFilter
from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.cards.note_account_event import note_account_event
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.identifiers import GuestId
from domain.pagination import ALL
from domain.storage import WriteUnit


def end_and_blank(unit: WriteUnit, note_event: NoteEvent, guest_id: GuestId, now: datetime) -> bool:
    """Remove a guest and the guest's cards, cancel open sessions, and clear personal data.

    The PSP may still have to be asked about a cancelled session. Such a session is not over, and
    keeps the data that the question needs: the parameters of its page, the evidence and
    `redirect_uri`. Return whether all of the guest's sessions are over.

    May be called more than once. The caller commits the unit.
    """
    # Each call removes the guest, because a request may store the guest on PostgreSQL during the
    # erasure.
    unit.guests.remove(guest_id)
    unit.portal_sessions.remove(guest_id)
    are_over = unit.sessions.blank_unreadable(guest_id, now)
    for session in unit.sessions.of_guest(guest_id):
        unit.desk_links.remove(session.token_id)
        blank = session.cancelled(now).without_personal_data()
        if blank != session:
            unit.sessions.update(blank)
        # The PSP is asked once more about a due session, with the evidence that made it due.
        is_over = blank.is_over and blank.due_at is None
        if is_over:
            unit.evidence.remove(session.token_id)
        are_over = are_over and is_over
    unkept = [UnkeptToken(*each, now) for each in unit.accounts.remove_unreadable(guest_id, now)]
    active = AccountFilter(guest_id=guest_id, only_active=True)
    for account in unit.accounts.search(active, limit=ALL):
        removed = account.removed(now)
        unit.accounts.update(removed)
        note_account_event(unit, note_event, EventType.ACCOUNT_REMOVED, removed, now=now)
        unkept.append(UnkeptToken.of(account))
    unit.agreements.remove_references(guest_id)
    unit.agreements.blank_unreadable(guest_id, now)
    for agreement in unit.agreements.of_guest(guest_id):
        # The agreed terms are kept, but the client's reference for the booking is cleared.
        terms = replace(agreement.terms, reference="")
        ended = agreement if agreement.ended_at else agreement.ended(None, now)
        unit.agreements.update(replace(ended, terms=terms))
    unit.event_deliveries.unmark_evidence(guest_id)
    for token in unkept:
        note_discard(unit, token, now=now)
    return are_over
