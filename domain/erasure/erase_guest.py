"""Erase a guest."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.cards.account import AccountFilter
from domain.erasure.blank import end_and_blank
from domain.erasure.erasure import Erasure, ErasureFile
from domain.errors import GuestNotFound
from domain.guests.guest import parse_guest_id
from domain.identifiers import GuestId
from domain.outside import Clock, Ids
from domain.permissions import MAY_ERASE_GUESTS, Caller
from domain.storage import AlreadyStored, Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseGuest:
    """Use case: delete a guest, and whatever is known of the person.

    One commit ends the guest's open sessions, removes the cards, and blanks names and addresses; the
    worker does the rest (`FinishErasures`). Ids, dates, brands, last four digits and consents stay.
    The guest is noted in `file` just before it: one whose erasure is not committed, because the
    process dies right then, is there as well, and is erased by `EraseAgain`. Raises
    UserNotAuthorized, also for a caller that is limited to centers, GuestIdNotUsable, or
    GuestNotFound when nothing is on file.
    """

    storage: Storage
    file: ErasureFile
    note_act: NoteAct
    clock: Clock
    ids: Ids

    def __call__(self, caller: Caller | None, *, guest_id: str) -> None:
        """Erase the guest. Without a caller, the operator acts."""
        if caller is not None:
            caller.require_all_centers()
            caller.require(MAY_ERASE_GUESTS)
        known_id, now = parse_guest_id(guest_id), self.clock.now()
        with self.storage.read() as unit:
            if not _is_on_file(unit, known_id):
                raise GuestNotFound

        def erase(unit: WriteUnit) -> None:
            unit.erasures.add(Erasure(guest_id=known_id, erased_at=now, due_at=now))
            end_and_blank(unit, self.ids, known_id, now)
            self.note_act(unit, Action.GUEST_ERASED, known_id, caller=caller)
            self.file.note(known_id, now)
            unit.commit()

        # Another request may have erased the guest at the same time.
        with suppress(AlreadyStored):
            self.storage.transact(erase)


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseAgain:
    """Use case: erase the guests in the file whom a restored backup has brought back."""

    storage: Storage
    file: ErasureFile
    erase_guest: EraseGuest

    def found(self) -> list[GuestId]:
        """Return those guests."""
        with self.storage.read() as unit:
            return [
                guest_id
                for guest_id in sorted(self.file.guest_ids())
                if _is_on_file(unit, guest_id)
            ]

    def __call__(self) -> list[GuestId]:
        """Erase them, and return who they were."""
        found = self.found()
        for guest_id in found:
            self.erase_guest(None, guest_id=guest_id)
        return found


def _is_on_file(unit: UnitOfWork, guest_id: GuestId) -> bool:
    """Return whether there is anything to erase. A guest deleted by hand leaves more."""
    if unit.erasures.get(guest_id) is not None:
        return False
    return bool(
        unit.guests.get(guest_id)
        or unit.sessions.of_guest(guest_id)
        or unit.accounts.search(AccountFilter(guest_id=guest_id), limit=1)
    )
