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
    """What a guest may do with a card, apart from replacing it."""

    REMOVE = "remove"
    WITHDRAW = "withdraw"
    """Withdraw the consent to charges other than for bookings."""
    DEFAULT = "default"


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeCard:
    """Use case: remove a card, withdraw its general consent, or make it the default.

    A card that guarantees a booking stays for it, if the center has set that; a withdrawal always
    leaves it. Without a booking, a withdrawal removes the card. The shop is told by an event. The
    audit trail notes a removal and a withdrawal, and `log_taken_back` is called with the card after
    the commit. A change that was made before has no further event, entry or call. A card that is
    not the guest's at the center does not change. Raises PortalEnded.
    """

    storage: Storage
    clock: Clock
    note_event: NoteEvent
    note_act: NoteAct
    log_taken_back: Callable[[Account], None]

    def __call__(self, cookie: str | None, account_id: str, change: CardChange) -> Account | None:
        """Return the changed card, or None if nothing changed."""

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
