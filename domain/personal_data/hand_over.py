"""Move the records of a merged guest to the remaining guest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from domain.cards.account import Account, has_default
from domain.cards.join_accounts import join_accounts
from domain.events.note_event import NoteEvent
from domain.identifiers import GuestId
from domain.storage import WriteUnit


def lock_both(unit: WriteUnit, merged: GuestId, remaining: GuestId) -> Sequence[Account]:
    """Lock the sessions of `merged`, then the cards of both guests; return all active cards.

    Raises RecordUnreadable if a card cannot be decoded.
    """
    unit.sessions.of_guest(merged)
    return [
        account
        for guest_id in sorted((merged, remaining))
        for account in unit.accounts.active_of(guest_id)
    ]


def hand_over(
    unit: WriteUnit, note_event: NoteEvent, merged: GuestId, remaining: GuestId, now: datetime
) -> None:
    """Move the records of `merged` to `remaining`, and remove `merged`.

    The records are cards, sessions, refusals, agreements and references. If both guests have the
    same card at a center, the account with the later consent stays, and it gets the agreements of
    both. At each center, the default card of `remaining` remains the default. Stored requests to
    PSPs keep the id of `merged`. May be called more than once. The caller commits the unit. Raises
    RecordUnreadable if a card cannot be decoded.
    """
    active = lock_both(unit, merged, remaining)
    kept = [account for account in active if account.guest_id == remaining]
    for account in active:
        if account.guest_id == merged:
            _reassign(unit, note_event, account, remaining, kept, now)
    unit.guests.remove(merged)
    unit.portal_sessions.remove(merged)
    # Nobody with a link to the page of the remaining guest may see the moved cards.
    for session in unit.portal_sessions.of(remaining):
        unit.portal_sessions.update(session.ended(now))
    unit.sessions.reassign(merged, remaining)
    unit.accounts.reassign(merged, remaining)
    # Both guests may have a reference at the same merchant account. A page of the remaining guest
    # must not show what the PSP stores about the other guest.
    for psp_account, reference in unit.guest_references.of(merged):
        unit.guest_references.keep_former(remaining, psp_account, reference)
    unit.guest_references.remove(merged)
    unit.refused_cards.reassign(merged, remaining)
    unit.agreements.reassign(merged, remaining)


def _reassign(
    unit: WriteUnit,
    note_event: NoteEvent,
    account: Account,
    remaining: GuestId,
    kept: Sequence[Account],
    now: datetime,
) -> None:
    """Move an active account to `remaining`, whose active accounts at the center are `kept`."""
    there = [each for each in kept if each.center_id == account.center_id]
    is_default = account.is_default and not has_default(there)
    given = replace(account, guest_id=remaining, is_default=is_default)
    twin = next((each for each in there if each.is_same_card(account, account.psp_account)), None)
    if twin is None:
        unit.accounts.update(given)
        return
    is_older = twin.consented_at >= given.consented_at
    latest, duplicate = (twin, given) if is_older else (given, twin)
    join_accounts(unit, note_event, replace(latest, is_default=twin.is_default), duplicate, now)
