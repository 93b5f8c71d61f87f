"""Remove the old card after a guest has replaced it with a new card."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.cards.choose_default_card import make_default
from domain.cards.refresh_verdict import REPLACED
from domain.cards.take_back import take_back
from domain.centers.payment_configuration import GuestRemoval
from domain.events.note_event import NoteEvent
from domain.sessions.session import CardSession
from domain.storage import UnitOfWork, WriteUnit


def may_agree_again(unit: UnitOfWork, session: CardSession) -> bool:
    """Return whether the guest may agree again to the agreements that the session would replace.

    The guest may not agree again if one of these agreements was ended by the shop meanwhile, for
    example because the booking was cancelled. The same applies if an agreement was already replaced
    or deleted. The caller has locked the guest's cards.
    """
    formers = [unit.agreements.get(each.replaces) for each in session.bookings if each.replaces]
    return all(each is not None and each.reason is None for each in formers)


def take_replaced(
    unit: WriteUnit, note_event: NoteEvent, note_act: NoteAct, session: CardSession, now: datetime
) -> Account | None:
    """Remove the old card after a completed session has stored its replacement.

    Return the old card as it is afterwards: removed, or kept only for its bookings. Return None if
    nothing changed or an earlier withdrawal had the same effect. Nothing changes if the session
    does not replace a card, if the guest typed in the same card again, or if the old card is no
    longer on file.

    The new card becomes the default card if the old card was the default.

    The new card takes over only the agreements to which the guest agreed again. It does not take
    over agreements for bookings that are over, or agreements that the guest made while the session
    was open. The old card stays on file for such agreements, whatever the center has set for
    removals.

    The caller has already stored the new card with its agreements, and commits the unit.
    """
    if session.replaces is None or session.account_id in (None, session.replaces.account_id):
        return None
    on_file = {
        each.account_id: each
        for each in unit.accounts.active_at(session.guest_id, session.center_id)
    }
    former, new = on_file.get(session.replaces.account_id), on_file.get(session.account_id)
    if former is None or new is None:
        return None
    if former.is_default:
        on_file[new.account_id] = make_default(unit, new, [former]) or new
        former = replace(former, is_default=False)
    others = [each for each in on_file.values() if each.account_id != former.account_id]
    return take_back(
        unit,
        note_event,
        note_act,
        former,
        others,
        removal=GuestRemoval.AFTER_AGREEMENT,
        reason=REPLACED,
        now=now,
    )
