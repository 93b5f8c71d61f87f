"""A guest takes a card back: the rule about bookings that it guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

from domain.agreements.agreement import Agreement
from domain.cards.account import Account
from domain.cards.note_account_event import note_account_event
from domain.cards.take_off_file import take_off_file
from domain.centers.payment_configuration import GuestRemoval
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.storage import WriteUnit

BY_GUEST: Final = "guest"
"""Who caused the event, in `by`."""


def running_among(agreements: Sequence[Agreement], now: datetime) -> Sequence[Agreement]:
    """Return the agreements under which a card may be charged now."""
    return [each for each in agreements if each.allows_charges(now)]


def stays_until(
    removal: GuestRemoval, agreements: Sequence[Agreement], now: datetime
) -> datetime | None:
    """Return until when a card stays for its bookings if the guest takes it back.

    None means that it is removed at once. `agreements` are all agreements of the card.
    """
    if removal is GuestRemoval.ALWAYS or not running_among(agreements, now):
        return None
    return max(each.keeps_card_until for each in agreements)


def take_back(
    unit: WriteUnit,
    note_event: NoteEvent,
    account: Account,
    others: Sequence[Account],
    *,
    removal: GuestRemoval,
    reason: str | None = None,
    now: datetime,
) -> Account:
    """Remove a card for its guest, or end all consent but that for its bookings; return the card.

    The caller has locked the card and the `others` of the guest at its center, and commits. If the
    card was kept for bookings only before, and stays for them, nothing changes.
    """
    agreements = unit.agreements.of_account(account.account_id)
    until = stays_until(removal, agreements, now)
    if until is None:
        return take_off_file(unit, note_event, account, others, reason=reason, by=BY_GUEST, now=now)
    if account.keep_until is not None:
        return account
    version = running_among(agreements, now)[-1].shown.version
    stays = account.withdrawn(until, version, now)
    unit.accounts.update(stays)
    note_account_event(unit, note_event, EventType.CONSENT_WITHDRAWN, stays, by=BY_GUEST, now=now)
    return stays
