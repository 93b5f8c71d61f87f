"""Erase a guest."""

from __future__ import annotations

from dataclasses import dataclass

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.errors import GuestNotFound
from domain.events.note_event import NoteEvent
from domain.guests.guest import parse_guest_id
from domain.identifiers import GuestId
from domain.outside import Clock
from domain.permissions import MAY_ERASE_GUESTS, Caller
from domain.personal_data.blank import end_and_blank
from domain.personal_data.erasure import AtPsps, Erasure, ErasureFile, ErasureLog
from domain.personal_data.merge_guests import MergeGuests
from domain.storage import AlreadyStored, RecordUnreadable, Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseGuest:
    """Use case: erase a guest with all personal data.

    One commit ends the guest's open sessions, removes the cards, and clears names and addresses.
    The worker does the rest (`FinishErasures`). Ids, dates, brands, last four digits and consents
    are kept.

    The guest is added to `file` just before the commit. If the process dies between the two steps,
    the file contains a guest who is not erased, and `repeat_from_file` erases that guest. If the
    guest were added after the commit, and the process died between the two steps, the file would
    lack the guest. If an older backup were then restored, nothing would show that the guest must be
    erased again. The guests who were merged into this guest are added too, in case `MergeGuests`
    has not added them yet.

    Raises UserNotAuthorized, also for a caller that is limited to centers. Raises GuestIdNotUsable,
    or GuestNotFound if nothing is stored about the guest.
    """

    needs = MAY_ERASE_GUESTS

    storage: Storage
    file: ErasureFile
    note_act: NoteAct
    log: ErasureLog
    clock: Clock
    note_event: NoteEvent
    merge_guests: MergeGuests

    def __call__(self, caller: Caller | None, *, guest_id: str) -> None:
        """Erase the guest. Without a caller, the operator is the actor."""
        if caller is not None:
            caller.require(self.needs)
        known_id = parse_guest_id(guest_id)
        with self.storage.read() as unit:
            if unit.erasures.get(known_id) is not None or not unit.guests.is_on_file(known_id):
                raise GuestNotFound
        if not self._erase(known_id, caller):
            with self.storage.read() as unit:
                erasure = unit.erasures.get(known_id)
            if erasure is not None and erasure.merged_into is not None:
                # The guest was merged at the same time. The cards now belong to another guest.
                raise GuestNotFound

    def guests_not_erased(self) -> list[GuestId]:
        """Return the guests in `file` who are in the database, but neither erased nor merged there.

        There can be such guests after a backup was restored, or after a process was killed during
        an erasure.
        """
        with self.storage.read() as unit:
            return [each for each in self._not_erased(unit) if unit.guests.is_on_file(each)]

    def repeat_from_file(self) -> list[GuestId]:
        """Repeat the erasures and merges that are in `file` but not in the database.

        Guests without data in the database are erased too, so that their ids cannot be reused.
        Return all guests whose erasure or merge was repeated.

        A guest cannot be merged if one of the cards cannot be decoded. In this case,
        RecordUnreadable is raised after all other guests were processed.
        """
        with self.storage.read() as unit:
            found = self._not_erased(unit)
        named, merged = self.file.erased(), self.file.merged()
        failure = None
        for guest_id in found:
            at_psps, remaining = named[guest_id], merged.get(guest_id)
            try:
                if remaining is None or not self.merge_guests.repeat(guest_id, remaining, at_psps):
                    self._erase(guest_id, None, at_psps)
            except RecordUnreadable as error:
                failure = error
        if failure is not None:
            raise failure
        return found

    def _not_erased(self, unit: UnitOfWork) -> list[GuestId]:
        named = self.file.erased().keys()
        erased = unit.erasures.among(named)
        return [guest_id for guest_id in named if guest_id not in erased]

    def _erase(self, guest_id: GuestId, caller: Caller | None, at_psps: AtPsps = ()) -> bool:
        """Erase a guest, and return True.

        `at_psps` are the guest's references at PSPs, which the database may lack. Return False if
        another request has erased or merged the guest at the same time.
        """
        now = self.clock.now()

        def erase(unit: WriteUnit) -> None:
            unit.erasures.add(Erasure(guest_id=guest_id, erased_at=now, due_at=now))
            at_all_psps = sorted({*unit.guest_references.of(guest_id), *at_psps})
            end_and_blank(unit, self.note_event, guest_id, now)
            # References are stored after the sessions are locked, as in every unit: a unit that
            # stores a page locks its session first, and then stores the guest's reference.
            for psp_account, reference in at_psps:
                unit.guest_references.keep_former(guest_id, psp_account, reference)
            self.note_act(unit, Action.GUEST_ERASED, guest_id, caller=caller)
            self.file.note(guest_id, now, at_all_psps)
            for merged_id in unit.erasures.merged_into(guest_id):
                merged = unit.erasures.get(merged_id)
                merged_at = merged.erased_at if merged else now
                self.file.note(merged_id, merged_at, (), merged_into=guest_id)
            unit.commit()

        try:
            self.storage.transact(erase)
        except AlreadyStored:
            return False
        self.log(guest_id, is_done=False)
        return True
