"""A guest changes a card on the guest's own page."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from domain.audit.note_act import NoteAct
from domain.cards.account import Account
from domain.cards.choose_default_card import make_default
from domain.cards.note_account_event import note_account_event
from domain.cards.take_back import BY_GUEST, take_back
from domain.centers.payment_configuration import GuestRemoval
from domain.centers.queries import removal_by_guests
from domain.events.event import EventType
from domain.events.note_event import NoteEvent
from domain.outside import Clock
from domain.portal.find_portal import find_visit
from domain.storage import Storage, WriteUnit


class CardChange(StrEnum):
    """A change that a guest can make to a card. Replacing a card is a separate use case."""

    REMOVE = "remove"
    WITHDRAW = "withdraw"
    """Withdraw the consent to all charges except those for bookings."""
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCard:
    """Use case: remove a card, withdraw its general consent, or make it the default.

    The center's settings decide whether a removed card stays on file for the bookings that it
    guarantees. After a withdrawal, a card that guarantees bookings always stays on file for these
    bookings, and a card that guarantees no booking is removed.

    Each change stores an event for the shop. Removals and withdrawals are also noted in the audit
    trail, and `log_taken_back` is called with the card after the commit. If a change is repeated,
    no event or entry is stored, and nothing is logged. Nothing happens if the guest has no such
    card at the center. Raises PortalEnded.
    """

    storage: Storage
    clock: Clock
    note_event: NoteEvent
    note_act: NoteAct
    log_taken_back: Callable[[Account], None]

    def __call__(self, cookie: str | None, account_id: str, change: CardChange) -> Account | None:
        """Change the card, and return it, or return None if nothing changed.

        `cookie` is the value of the browser's cookie, which identifies the visit.
        """

        def make(unit: WriteUnit) -> Account | None:
            now = self.clock.now()
            visited = find_visit(unit, cookie, now)
            account = visited.account(account_id)
            if account is None:
                return None
            others = [each for each in visited.accounts if each is not account]
            if change is CardChange.DEFAULT:
                chosen = make_default(unit, account, others)
                if chosen is not None:
                    note_account_event(
                        unit,
                        self.note_event,
                        EventType.ACCOUNT_DEFAULT,
                        chosen,
                        by=BY_GUEST,
                        now=now,
                    )
                    unit.commit()
                return chosen
            removal = removal_by_guests(unit, account.center_id)
            if change is CardChange.WITHDRAW:
                removal = GuestRemoval.AFTER_AGREEMENT
            changed = take_back(
                unit, self.note_event, self.note_act, account, others, removal=removal, now=now
            )
            unit.commit()
            return changed

        changed = self.storage.transact(make)
        if changed is not None and change is not CardChange.DEFAULT:
            self.log_taken_back(changed)
        return changed
