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
from domain.personal_data.erasure import MAX_REQUEST_DURATION, AtPsps, Erasure, ErasureFile
from domain.personal_data.hand_over import hand_over, lock_both
from domain.storage import AlreadyStored, Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeGuests:
    """Use case: merge a guest into another guest, and remove the merged guest.

    The cards, sessions and refusals of the merged guest move to the other guest. A merge cannot be
    undone. The remaining guest keeps the names and the default cards. The id of the removed guest
    is never used again, and its `Erasure` names the remaining guest. The permissions `guests:edit`
    and `guests:erase` are required.

    `last_fours` shows that the caller has seen the present cards of both guests. It must contain
    the last four digits of each of their active cards, in any order.

    The merge is added to the erasure file (`file`) after the commit, whereas an erasure is added
    before its commit. If the file contained a merge that was not committed, the merge would be
    carried out later, when the guests may have other cards. If the process dies after the commit,
    or the file cannot be written, the worker adds the merge (`FinishErasures`).

    Raises UserNotAuthorized, also for a caller that is limited to centers. Raises GuestIdNotUsable,
    InvalidField (from, last_fours), GuestNotFound or CardsDoNotMatch.
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
        remaining, merged = parse_guest_id(guest_id), GuestId(parse_uuid("from", merged_id))
        if merged == remaining:
            raise InvalidField("from", "the id of another guest")
        expected = _parse_last_fours(last_fours)

        now = self.clock.now()

        def merge(unit: WriteUnit) -> AtPsps:
            self._begin(unit, merged, remaining, now)
            cards = lock_both(unit, merged, remaining)
            guests = [unit.guests.get(each) for each in (merged, remaining)]
            # The guests are read under the locks, because another merge or an erasure may have
            # removed a guest.
            if None in guests or unit.erasures.get(remaining) is not None:
                raise GuestNotFound
            if sorted(account.last_four for account in cards) != expected:
                raise CardsDoNotMatch
            at_psps = unit.guest_references.of(merged)
            self._hand_over(unit, merged, remaining, caller, now)
            unit.commit()
            return at_psps

        try:
            at_psps = self.storage.transact(merge)
        except AlreadyStored:
            raise GuestNotFound from None
        # The merge is done. If the file cannot be written, the worker tries again and reports it.
        with suppress(ServiceUnavailable):
            self.file.note(merged, now, at_psps, merged_into=remaining)

    def repeat(self, merged: GuestId, remaining: GuestId, at_psps: AtPsps) -> bool:
        """Repeat a merge that is in `file` but not in the database, after a backup was restored.

        `at_psps` are the references of `merged` in the file. If `remaining` was later merged into a
        third guest, `merged` is merged into that guest.

        After the backup was restored, the guests may have been merged in the opposite direction:
        `remaining` into `merged`. In this case, the merge in `file` is not repeated. Instead, the
        opposite merge is added to `file`.

        Return False, and do nothing, if `remaining` was erased. In all other cases, return True.
        """

        now = self.clock.now()

        def merge(unit: WriteUnit) -> bool:
            heir = _heir(unit, remaining)
            if heir is None:
                return False
            if heir == merged:
                self.file.note(remaining, now, (), merged_into=merged)
                return True
            self._begin(unit, merged, heir, now)
            self._hand_over(unit, merged, heir, None, now)
            for psp_account, reference in at_psps:
                unit.guest_references.keep_former(heir, psp_account, reference)
            unit.commit()
            return True

        try:
            return self.storage.transact(merge)
        except AlreadyStored:
            # Another process has repeated the merge at the same time.
            return True

    def _begin(self, unit: WriteUnit, merged: GuestId, remaining: GuestId, now: datetime) -> None:
        """Store the erasure that records the merge of `merged` into `remaining`.

        Raises AlreadyStored if `merged` was already erased or merged.
        """
        # Requests that are still running may store records for `merged`, which the worker moves.
        due_at = now + MAX_REQUEST_DURATION
        erasure = Erasure(guest_id=merged, erased_at=now, due_at=due_at, merged_into=remaining)
        unit.erasures.add(erasure)
        # Locks the erasures before the cards, as `FinishErasures` does.
        unit.erasures.merge_on(merged, remaining)

    def _hand_over(
        self,
        unit: WriteUnit,
        merged: GuestId,
        remaining: GuestId,
        caller: Caller | None,
        now: datetime,
    ) -> None:
        hand_over(unit, self.note_event, merged, remaining, now)
        # This is repeated, because another guest may have been merged into `merged` meanwhile.
        unit.erasures.merge_on(merged, remaining)
        self.note_act(unit, Action.GUEST_MERGED, merged, {"into": remaining}, caller=caller)
        self.note_event(
            unit,
            Event(
                event_id=new_event_id(self.note_event.ids),
                type=EventType.GUEST_MERGED,
                occurred_at=now,
                guest_id=remaining,
                merged_guest_id=merged,
                # Guests do not belong to centers, and a merge is not caused by a session.
                center_id=CenterId(NOBODY),
                token_id=TokenId(NOBODY),
                status="merged",
            ),
        )


def _heir(unit: UnitOfWork, guest_id: GuestId) -> GuestId | None:
    """Return the guest who remains after all merges of a guest.

    Return the same guest if the guest was neither merged nor erased. Return None if the guest was
    not merged but erased.
    """
    erasure = unit.erasures.get(guest_id)
    return guest_id if erasure is None else erasure.merged_into


def _parse_last_fours(value: object) -> Sequence[str]:
    """Return the last four digits of cards, sorted. Raises InvalidField."""
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return sorted(value)
    raise InvalidField("last_fours", "a list of the last four digits of each card of both guests")
