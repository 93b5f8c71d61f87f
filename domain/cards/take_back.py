"""A guest takes a card back: the rule about bookings that it guarantees."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import Final

from domain.agreements.agreement import Agreement, last_kept_until, running_among
from domain.audit.entry import GUEST, Action
from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.cards.note_account_event import note_account_event
from domain.cards.take_off_file import take_off_file
from domain.centers.payment_configuration import GuestRemoval
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.storage import WriteUnit

BY_GUEST: Final = "guest"
"""Who caused the event, in `by`."""


def stays_until(removal: GuestRemoval, running: Sequence[Agreement]) -> datetime | None:
    """Return until when a card stays for its bookings if the guest takes it back.

    None means that it is removed at once. `running` are the agreements under which the card may be
    charged now.
    """
    return None if removal is GuestRemoval.ALWAYS else last_kept_until(running)


def take_back(
    unit: WriteUnit,
    note_event: NoteEvent,
    note_act: NoteAct,
    account: Account,
    others: Sequence[Account],
    *,
    removal: GuestRemoval,
    reason: str | None = None,
    now: datetime,
) -> Account | None:
    """Remove a card for its guest, or end all consent but that for its bookings; return the card.

    The audit trail notes it. The caller has locked the card and the `others` of the guest at its
    center, and commits. If the card was taken back before, and stays, only the time of the
    withdrawal changes, and None is returned.
    """
    running = running_among(unit.agreements.of_account(account.account_id), now)
    if stays_until(removal, running) is None:
        withdrawn, action = replace(account, withdrawn_at=now), Action.CARD_REMOVED
        changed = take_off_file(
            unit, note_event, withdrawn, others, reason=reason, by=BY_GUEST, now=now
        )
    else:
        changed, action = account.withdrawn(running, now), Action.CONSENT_WITHDRAWN
        unit.accounts.update(changed)
        if account.is_taken_back:
            return None
        note_account_event(
            unit, note_event, EventType.CONSENT_WITHDRAWN, changed, by=BY_GUEST, now=now
        )
    details = {"guest": changed.guest_id, "center": changed.center_id}
    note_act(unit, action, changed.account_id, details, actor=GUEST)
    return changed
