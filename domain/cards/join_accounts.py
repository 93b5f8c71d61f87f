"""Join two accounts that turned out to have the same card."""

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
    unit: WriteUnit, note_event: NoteEvent, remaining: Account, duplicate: Account, now: datetime
) -> Account:
    """Move the agreements of `duplicate` to `remaining`, copy the consents, and remove `duplicate`.

    The account `remaining` is kept on file as long as either account would have been kept. If the
    guest withdrew the consent for one account, the withdrawal applies to both. The card is then
    kept only for the running agreements, unless the guest gave a general consent after the
    withdrawal. Returns the account `remaining` as stored. The caller has locked both accounts, and
    commits the unit. Raises RecordUnreadable.
    """
    kept, removed = _joined_account(unit, remaining, duplicate, now), duplicate.removed(now)
    # The storage refuses two active accounts with the same card, so `duplicate` is removed first.
    unit.accounts.update(removed)
    unit.accounts.update(kept)
    unit.agreements.move(removed.account_id, kept.account_id)
    unit.consents.copy(removed.account_id, kept.account_id)
    note_discard(unit, UnkeptToken.of(removed), now=now)
    note_account_event(
        unit, note_event, EventType.ACCOUNT_REMOVED, removed, reason=REPLACED, now=now
    )
    return kept


def _joined_account(
    unit: UnitOfWork, remaining: Account, duplicate: Account, now: datetime
) -> Account:
    withdrawn_at = max(filter(None, (remaining.withdrawn_at, duplicate.withdrawn_at)), default=None)
    if withdrawn_at is None:
        return remaining.kept_longer(duplicate.keep_until, duplicate.consent_version)
    both = [replace(each, withdrawn_at=withdrawn_at) for each in (remaining, duplicate)]
    general = [consent for each in both for consent in general_consents(unit, each)]
    if general:
        latest = max(general, key=lambda each: each.agreed_at)
        return replace(both[0], keep_until=None, consent_version=latest.version)
    agreements = [found for each in both for found in unit.agreements.of_account(each.account_id)]
    running = running_among(sorted(agreements, key=lambda each: each.agreed_at), now)
    return remaining.withdrawn(running, withdrawn_at)
