"""Take the card off file that a guest has replaced by another."""

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
    """Return whether the agreements that the session's agreements replace still run.

    The shop may have ended one, for example because the booking was cancelled. The caller holds the
    locks on the guest's cards.
    """
    formers = [unit.agreements.get(each.replaces) for each in session.bookings if each.replaces]
    return all(each is not None and each.reason is None for each in formers)


def take_replaced(
    unit: WriteUnit, note_event: NoteEvent, note_act: NoteAct, session: CardSession, now: datetime
) -> Account | None:
    """Give the place of the replaced card to the card of a completed session.

    Return the replaced card as it is afterwards, removed or kept for bookings only. Return None if
    the session took nothing back.

    The new card becomes the default if the replaced one was. Whatever the center has set for
    removals, the replaced card stays for a booking to which the guest did not agree again: the
    booking is over, or the guest used the replaced card for it meanwhile. Nothing happens if the
    guest typed the same card again, or if the replaced card is gone. Store the new card and its
    agreements first. The caller commits.
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
