"""Note in the audit trail that a guest took a card back."""

from __future__ import annotations

from domain.audit.entry import GUEST, Action
from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.storage import WriteUnit


def note_taken_back(unit: WriteUnit, note_act: NoteAct, changed: Account) -> None:
    """Note that a guest removed a card, or ended all consent but that for its bookings.

    `changed` is the card afterwards, as `take_back` returns it. The caller commits.
    """
    is_removed = changed.removed_at is not None
    action = Action.CARD_REMOVED if is_removed else Action.CONSENT_WITHDRAWN
    details = {"guest": changed.guest_id, "center": changed.center_id}
    note_act(unit, action, changed.account_id, details, actor=GUEST)
