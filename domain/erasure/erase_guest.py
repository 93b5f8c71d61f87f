"""Erase a guest."""

from __future__ import annotations

from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.erasure.blank import end_and_blank
from domain.erasure.erasure import Erasure, ErasureFile, ErasureLog
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
    The guest is noted in `file` just before it. If the process dies between the two, the file names a
    guest who is not erased, and `again` erases the guest; the other way round, a restored backup
    would bring back a guest whom the file does not name. Raises UserNotAuthorized, also for a caller
    that is limited to centers, GuestIdNotUsable, or GuestNotFound when nothing is on file.
    """

    storage: Storage
    file: ErasureFile
    note_act: NoteAct
    log: ErasureLog
    clock: Clock
    ids: Ids

    def __call__(self, caller: Caller | None, *, guest_id: str) -> None:
        """Erase the guest. Without a caller, the operator acts."""
        if caller is not None:
            caller.require_all_centers()
            caller.require(MAY_ERASE_GUESTS)
        known_id, now = parse_guest_id(guest_id), self.clock.now()
        with self.storage.read() as unit:
            if not _may_be_erased(unit, known_id):
                raise GuestNotFound

        def erase(unit: WriteUnit) -> None:
            unit.erasures.add(Erasure(guest_id=known_id, erased_at=now, due_at=now))
            end_and_blank(unit, self.ids, known_id, now)
            self.note_act(unit, Action.GUEST_ERASED, known_id, caller=caller)
            self.file.note(known_id, now)
            unit.commit()

        try:
            self.storage.transact(erase)
        except AlreadyStored:
            # Another request has erased the guest at the same time.
            return
        self.log(known_id, is_done=False)

    def brought_back(self) -> list[GuestId]:
        """Return the guests in the file who are in the database, as after a backup is restored."""
        with self.storage.read() as unit:
            named = sorted(self.file.guest_ids())
            return [guest_id for guest_id in named if _may_be_erased(unit, guest_id)]

    def again(self) -> list[GuestId]:
        """Erase these guests, and return who they were."""
        found = self.brought_back()
        for guest_id in found:
            self(None, guest_id=guest_id)
        return found


def _may_be_erased(unit: UnitOfWork, guest_id: GuestId) -> bool:
    return unit.erasures.get(guest_id) is None and unit.guests.is_on_file(guest_id)
