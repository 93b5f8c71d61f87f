"""Make one account of two that turned out to be the same card."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from domain.agreements.agreement import running_among
from domain.cards.account import Account
from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.cards.note_account_event import note_account_event
from domain.cards.queries import general_consents
from domain.cards.refresh_verdict import REPLACED
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.storage import UnitOfWork, WriteUnit


def join_accounts(
    unit: WriteUnit, note_event: NoteEvent, stays: Account, goes: Account, now: datetime
) -> Account:
    """Give all that the guest agreed to for `goes` to `stays`, and remove `goes`; return `stays`.

    The card is kept as long as either account was. A withdrawal counts for both: if no general
    consent is later, only the agreements that run keep the card. The caller holds the locks on the
    accounts, and commits. Raises RecordUnreadable.
    """
    kept, removed = _kept_as_one(unit, stays, goes, now), goes.removed(now)
    # The order matters: the storage refuses the same card twice even within a unit.
    unit.accounts.update(removed)
    unit.accounts.update(kept)
    unit.agreements.move(removed.account_id, kept.account_id)
    unit.consents.copy(removed.account_id, kept.account_id)
    note_discard(unit, UnkeptToken.of(removed), now=now)
    note_account_event(
        unit, note_event, EventType.ACCOUNT_REMOVED, removed, reason=REPLACED, now=now
    )
    return kept


def _kept_as_one(unit: UnitOfWork, stays: Account, goes: Account, now: datetime) -> Account:
    withdrawn_at = max(filter(None, (stays.withdrawn_at, goes.withdrawn_at)), default=None)
    if withdrawn_at is None:
        return stays.kept_longer(goes.keep_until, goes.consent_version)
    both = [replace(each, withdrawn_at=withdrawn_at) for each in (stays, goes)]
    general = [consent for each in both for consent in general_consents(unit, each)]
    if general:
        latest = max(general, key=lambda each: each.agreed_at)
        return replace(both[0], keep_until=None, consent_version=latest.version)
    agreements = [found for each in both for found in unit.agreements.of_account(each.account_id)]
    running = running_among(sorted(agreements, key=lambda each: each.agreed_at), now)
    return stays.withdrawn(running, withdrawn_at)
