"""A guest takes a card back: the rule about bookings that it guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from domain.agreements.agreement import Agreement, last_kept_until
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
    if removal is GuestRemoval.ALWAYS:
        return None
    return last_kept_until(running_among(agreements, now))


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
    card was taken back before, and stays, only the time of the withdrawal changes, without an event.
    """
    agreements = unit.agreements.of_account(account.account_id)
    if stays_until(removal, agreements, now) is None:
        withdrawn = replace(account, withdrawn_at=now)
        return take_off_file(
            unit, note_event, withdrawn, others, reason=reason, by=BY_GUEST, now=now
        )
    stays = account.withdrawn(running_among(agreements, now), now)
    unit.accounts.update(stays)
    if not account.is_taken_back:
        note_account_event(
            unit, note_event, EventType.CONSENT_WITHDRAWN, stays, by=BY_GUEST, now=now
        )
    return stays
