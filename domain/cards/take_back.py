"""Remove a card at the request of its guest, or withdraw the guest's consent.

A card that guarantees bookings may have to stay on file for them.
"""

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
"""The value of an event's `by` if the guest caused the event."""


def stays_until(removal: GuestRemoval, running: Sequence[Agreement]) -> datetime | None:
    """Return the time until which a card stays on file for its bookings after the guest removes it.

    Return None if the card would be removed at once. `removal` is the center's setting. `running`
    are the agreements under which the card may be charged now.
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
    """Remove the card `account` for its guest, or keep it on file only for its bookings.

    The center's setting `removal` and the card's running agreements decide which of the two
    happens. If the card stays, its consent is recorded as withdrawn. The change is noted in the
    audit trail and stored as an event. Return the card after the change.

    If the card stays, and an earlier removal or withdrawal by the guest already left it on file
    only for its bookings, only the account is updated, for example with the new time of the
    withdrawal. In this case, nothing is noted in the audit trail or stored as an event, and None is
    returned.

    `others` are the guest's other active cards at the center. The caller has locked all of them and
    `account`, and commits the unit.
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
