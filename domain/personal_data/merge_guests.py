"""Merge two guests who are one person."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime

from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.errors import CardsDoNotMatch, GuestNotFound, InvalidField, ServiceUnavailable
from domain.events.event import Event, EventType
from domain.events.note_event import NoteEvent, new_event_id
from domain.events.send_test_event import NOBODY
from domain.fields import parse_uuid
from domain.guests.guest import parse_guest_id
from domain.identifiers import CenterId, GuestId, TokenId
from domain.outside import Clock
from domain.permissions import MAY_MERGE_GUESTS, Caller
from domain.personal_data.erasure import REQUESTS_END_WITHIN, AtPsps, Erasure, ErasureFile
from domain.personal_data.hand_over import hand_over, lock_both
from domain.storage import AlreadyStored, Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeGuests:
    """Use case: give the cards, sessions and refusals of a guest to another, and remove the first.

    It cannot be undone. The guest who stays keeps names and defaults. The id of the guest who goes
    is never used again: its `Erasure` names the guest who stays. `last_fours` are the last four
    digits of all active cards of both guests, in any order. Needs `guests:edit` and `guests:erase`.

    Both guests are added to `file` after the commit, unlike an erased guest, who is added before
    the commit. If the file contained a merge that was not committed, the merge would be carried out
    later, when the guests may have other cards. If the process dies after the commit, or the file
    cannot be written, the worker adds the guests (`FinishErasures`).

    Raises UserNotAuthorized, also for a caller that is limited to centers, GuestIdNotUsable,
    InvalidField (from, last_fours), GuestNotFound, CardsDoNotMatch.
    """

    needs = MAY_MERGE_GUESTS

    storage: Storage
    file: ErasureFile
    note_act: NoteAct
    clock: Clock
    note_event: NoteEvent

    def __call__(
        self, caller: Caller | None, *, guest_id: str, merged_id: object, last_fours: object
    ) -> None:
        """Merge the guest `merged_id` into `guest_id`. Without a caller, the operator is the actor."""
        if caller is not None:
            caller.require(self.needs)
        stays, goes = parse_guest_id(guest_id), GuestId(parse_uuid("from", merged_id))
        if goes == stays:
            raise InvalidField("from", "the id of another guest")
        expected = _parse_last_fours(last_fours)

        now = self.clock.now()

        def merge(unit: WriteUnit) -> AtPsps:
            self._begin(unit, goes, stays, now)
            cards = lock_both(unit, goes, stays)
            guests = [unit.guests.get(each) for each in (goes, stays)]
            # Read under the locks: another merge or an erasure may have removed a guest.
            if None in guests or unit.erasures.get(stays) is not None:
                raise GuestNotFound
            if sorted(account.last_four for account in cards) != expected:
                raise CardsDoNotMatch
            at_psps = unit.guest_references.of(goes)
            self._hand_over(unit, goes, stays, caller, now)
            unit.commit()
            return at_psps

        try:
            at_psps = self.storage.transact(merge)
        except AlreadyStored:
            raise GuestNotFound from None
        # The merge is done. If the file cannot be written, the worker tries again and reports it.
        with suppress(ServiceUnavailable):
            self.file.note(goes, now, at_psps, merged_into=stays)

    def again(self, goes: GuestId, stays: GuestId, at_psps: AtPsps) -> bool:
        """Repeat a merge that `file` records, after a backup was restored.

        `at_psps` are the references in the file. If `stays` was merged into a third guest later,
        `goes` is merged into that guest. If the guest who would stay was erased, return False and
        do nothing. If the database lost the merge, and `stays` was merged into `goes` later, that
        later merge is added to the file.
        """

        now = self.clock.now()

        def merge(unit: WriteUnit) -> bool:
            heir = _heir(unit, stays)
            if heir is None:
                return False
            if heir == goes:
                self.file.note(stays, now, (), merged_into=goes)
                return True
            self._begin(unit, goes, heir, now)
            self._hand_over(unit, goes, heir, None, now)
            for psp_account, reference in at_psps:
                unit.guest_references.keep_former(heir, psp_account, reference)
            unit.commit()
            return True

        try:
            return self.storage.transact(merge)
        except AlreadyStored:
            # Another process has done it at the same time.
            return True

    def _begin(self, unit: WriteUnit, goes: GuestId, stays: GuestId, now: datetime) -> None:
        """Note that a guest is merged. Raises AlreadyStored if the guest was erased or merged."""
        # The worker hands over what requests that are still running store for `goes`.
        due_at = now + REQUESTS_END_WITHIN
        erasure = Erasure(guest_id=goes, erased_at=now, due_at=due_at, merged_into=stays)
        unit.erasures.add(erasure)
        # Locks the erasures before the cards, as `FinishErasures` does.
        unit.erasures.merge_on(goes, stays)

    def _hand_over(
        self,
        unit: WriteUnit,
        goes: GuestId,
        stays: GuestId,
        caller: Caller | None,
        now: datetime,
    ) -> None:
        hand_over(unit, self.note_event, goes, stays, now)
        # Again, because another guest may have been merged into `goes` meanwhile.
        unit.erasures.merge_on(goes, stays)
        self.note_act(unit, Action.GUEST_MERGED, goes, {"into": stays}, caller=caller)
        self.note_event(
            unit,
            Event(
                event_id=new_event_id(self.note_event.ids),
                type=EventType.GUEST_MERGED,
                occurred_at=now,
                guest_id=stays,
                merged_guest_id=goes,
                # A guest belongs to no center, and no session causes a merge.
                center_id=CenterId(NOBODY),
                token_id=TokenId(NOBODY),
                status="merged",
            ),
        )


def _heir(unit: UnitOfWork, guest_id: GuestId) -> GuestId | None:
    """Return the guest who remains after all merges of a guest; None if that guest was erased."""
    erasure = unit.erasures.get(guest_id)
    return guest_id if erasure is None else erasure.merged_into


def _parse_last_fours(value: object) -> Sequence[str]:
    """Return the last four digits of cards in order. Raises InvalidField."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return sorted(value)
    raise InvalidField("last_fours", "a list of the last four digits of each card of both guests")
