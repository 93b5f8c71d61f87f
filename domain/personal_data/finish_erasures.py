"""Finish erasures: ask the PSPs to delete a guest, then clear the data that the calls needed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from domain.cards.discard import UnkeptToken
from domain.cards.discard_tokens import note_discard
from domain.centers.configure_payments import LoadedPsp
from domain.errors import ServiceUnavailable
from domain.events.note_event import NoteEvent
from domain.identifiers import GuestId, ProviderName, PspAccount
from domain.outside import Clock
from domain.personal_data.blank import end_and_blank
from domain.personal_data.erasure import AtPsps, Erasure, ErasureFile, ErasureLog
from domain.personal_data.hand_over import hand_over
from domain.psps.payment_provider import (
    NotFound,
    ProviderRefused,
    Providers,
    ProviderUnavailable,
    is_confirmed,
)
from domain.retries import is_alarming
from domain.sessions.session import CardSession
from domain.storage import RecordUnreadable, Storage, UnitOfWork, WriteUnit

MAX_PER_CALL: Final = 5
"""The maximum number of erasures that one call handles. PSPs are asked one after the other, and the
worker's other tasks wait during a call.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishErasures:
    """Use case: work on a few due erasures, and return whether more may be due.

    When the guest's sessions are over and the tokens are discarded, each PSP is asked to delete the
    guest, except at closed merchant accounts. Then references, tokens and `redirect_uri`s are
    cleared, and overwritten in the files of the database. If a PSP cannot delete guests, an expired
    session keeps its page: if the PSP reports a card late, the page is needed to discard the card.

    To finish a merge, records that were stored for the merged guest after the merge are moved to
    the remaining guest. Both guests are also added to `file`, in case the process that merged them
    died before it could do so.

    Work that is not possible yet is scheduled for the time when it will be possible. The waits
    between checks grow only if a PSP refuses, is unavailable or does not know the guest.

    May be called at any time, also by several processes at once. If an erasure fails, the others
    are still tried, and then ServiceUnavailable or RecordUnreadable is raised.
    """

    storage: Storage
    file: ErasureFile
    providers: Providers
    psps: Mapping[ProviderName, LoadedPsp]
    log: ErasureLog
    clock: Clock
    note_event: NoteEvent

    def __call__(self) -> bool:
        with self.storage.read() as unit:
            due = unit.erasures.due(self.clock.now(), at_most=MAX_PER_CALL)
        failure = None
        for erasure in due:
            try:
                self._finish(erasure.guest_id)
            except (ServiceUnavailable, RecordUnreadable) as error:
                # Some of the guest's rows may be damaged.
                failure = error
            left = self._left(erasure.guest_id)
            if left is not None and is_alarming(erasure.erased_at, self.clock.now()):
                self.log.not_done(erasure.guest_id, left.waits_for)
        if failure is not None:
            raise failure
        return len(due) == MAX_PER_CALL

    def _finish(self, guest_id: GuestId) -> None:
        now = self.clock.now()

        def check(unit: WriteUnit) -> Erasure | None:
            # This is a separate unit, so that an erasure that fails does not stay first in the
            # queue.
            erasure = unit.erasures.get(guest_id)
            if erasure is None or erasure.due_at is None:
                # Another process finished the erasure.
                return None
            checked = erasure.checked(now)
            unit.erasures.update(checked)
            unit.commit()
            return checked

        checked = self.storage.transact(check)
        if checked is None:
            return
        if checked.merged_into is not None:
            self._finish_merge(checked, now)
            return
        are_over, at_psps = self.storage.transact(lambda unit: self._end(unit, guest_id, now))
        with self.storage.read() as unit:
            closed = unit.merchant_standings.closed()
            waiting = [*_asked_about(unit, guest_id), *_discarding(unit, at_psps)]
        left = checked.waiting_for(psp_account for psp_account, _ in waiting)
        if waiting or (are_over and not left.may_be_done(now)):
            left = left.due_after(*(due_at for _, due_at in waiting), now=now)
        elif are_over:
            left = self._forget_and_blank(left, at_psps, closed, now)
        if self._note(left, before=checked) and left.done_at is not None:
            self.log(guest_id, is_done=True, out_of_reach=left.out_of_reach)

    def _end(self, unit: WriteUnit, guest_id: GuestId, now: datetime) -> tuple[bool, AtPsps]:
        """End open work and clear personal data that has appeared since the last check.

        Return the guest's references at PSPs. Also return whether all sessions are over.
        """
        # This comes first: it removes cards that cannot be decoded, which `hand_over` would refuse.
        are_over = end_and_blank(unit, self.note_event, guest_id, now)
        for merged_id in unit.erasures.merged_into(guest_id):
            # An earlier release may have stored a reference for the former guest.
            hand_over(unit, self.note_event, merged_id, guest_id, now)
        at_psps = unit.guest_references.of(guest_id)
        for at_psp in at_psps:
            for token in unit.discards.remove_unreadable(*at_psp):
                note_discard(unit, UnkeptToken(*at_psp, token, now), now=now)
        unit.commit()
        return are_over, at_psps

    def _finish_merge(self, checked: Erasure, now: datetime) -> None:
        """Move the records that requests have stored for the merged guest after the merge.

        These requests had read the guest before the merge.
        """

        def finish(unit: WriteUnit) -> tuple[GuestId, AtPsps] | None:
            erasure = unit.erasures.get(checked.guest_id)
            # The remaining guest may have been merged later.
            if erasure is None or erasure.merged_into is None:
                return None
            remaining = erasure.merged_into
            hand_over(unit, self.note_event, erasure.guest_id, remaining, now)
            # If the remaining guest was erased later, the moved records must be erased too.
            unit.erasures.reopen(remaining, now)
            # These are the references of both guests, because `hand_over` has moved them to
            # `remaining`.
            at_psps = unit.guest_references.of(remaining)
            unit.commit()
            return remaining, at_psps

        finished = self.storage.transact(finish)
        if finished is None:
            return
        remaining, at_psps = finished
        # The file is written after the commit, because it may not be writable.
        self.file.note(checked.guest_id, checked.erased_at, at_psps, merged_into=remaining)
        is_done = checked.may_be_done(now)
        left = checked.done(now) if is_done else checked.due_after(now=now)
        self._note(left, before=checked)

    def _forget_and_blank(
        self, checked: Erasure, at_psps: AtPsps, closed: frozenset[PspAccount], now: datetime
    ) -> Erasure:
        left = self._forget(checked, at_psps, closed)
        if left.waits_for:
            return left
        if self._blank(checked.guest_id, at_psps, closed, now) and self.storage.overwrite_deleted():
            out_of_reach = {psp_account for psp_account, _ in at_psps} & closed
            return left.done(self.clock.now(), out_of_reach=out_of_reach)
        # A card has appeared, or another process is still reading the former state.
        return left.due_after(now=now)

    def _note(self, erasure: Erasure, *, before: Erasure) -> bool:
        """Store the new state of an erasure, and return True.

        If the stored erasure differs from `before`, store nothing and return False. Either more
        data has appeared, or another process has checked the erasure. In both cases, the next check
        is already scheduled.
        """

        def note(unit: WriteUnit) -> bool:
            if unit.erasures.get(before.guest_id) != before:
                return False
            unit.erasures.update(erasure)
            unit.commit()
            return True

        return erasure == before or self.storage.transact(note)

    def _blank(
        self,
        guest_id: GuestId,
        at_psps: AtPsps,
        closed: frozenset[PspAccount],
        now: datetime,
    ) -> bool:
        """Clear the references and tokens that the calls to PSPs needed, and return True.

        Return False, and keep this data, if a PSP must be called once more, for example because a
        card has appeared meanwhile.
        """

        def blank(unit: WriteUnit) -> bool:
            # During a call to a PSP, a card may have appeared that must be discarded first.
            are_over = end_and_blank(unit, self.note_event, guest_id, now)
            is_known = set(unit.guest_references.of(guest_id)) <= set(at_psps)
            is_left = not are_over or not is_known or bool(_discarding(unit, at_psps))
            if not is_left:
                self._blank_the_rest(unit, guest_id, at_psps, closed)
            unit.commit()
            return not is_left

        return self.storage.transact(blank)

    def _left(self, guest_id: GuestId) -> Erasure | None:
        """Return the guest's erasure, or None if it is done."""
        with self.storage.read() as unit:
            erasure = unit.erasures.get(guest_id)
        return erasure if erasure is not None and erasure.done_at is None else None

    def _forget(self, checked: Erasure, at_psps: AtPsps, closed: frozenset[PspAccount]) -> Erasure:
        """Ask each PSP to delete the guest, except at closed merchant accounts.

        Return the new state of the erasure, which waits for the PSPs that have not deleted the
        guest. A PSP that does not know the guest is asked again, because it may not know the guest
        yet.
        """
        failed, unknown, now = set(), set(), self.clock.now()
        for psp_account, reference in at_psps:
            if psp_account in closed:
                continue
            try:
                self.providers[psp_account.provider].forget_guest(
                    psp_account.merchant_account, reference
                )
            except NotFound:
                unknown.add(psp_account)
            except (ProviderUnavailable, ProviderRefused):
                failed.add(psp_account)
        if failed or not unknown or is_confirmed(checked.unknown_since, now):
            return checked.waiting_for(failed)
        return checked.unknown(now).waiting_for(unknown)

    def _blank_the_rest(
        self,
        unit: WriteUnit,
        guest_id: GuestId,
        at_psps: AtPsps,
        closed: frozenset[PspAccount],
    ) -> None:
        """Clear the references and tokens that were kept for calls to PSPs.

        If a PSP cannot delete guests, an expired session keeps its page.
        """
        for session in unit.sessions.of_guest(guest_id):
            is_forgotten = session.configuration.psp_account in closed or self._forgets(session)
            if session.is_settled or is_forgotten:
                unit.sessions.update(session.without_references())
            if is_forgotten:
                unit.earlier_pages.remove(session.token_id)
        unit.accounts.blank(guest_id)
        for psp_account, reference in at_psps:
            for discard in unit.discards.of_guest(psp_account, reference):
                unit.discards.remove(discard)
        unit.guest_references.remove(guest_id)

    def _forgets(self, session: CardSession) -> bool:
        psp = self.psps.get(session.configuration.provider)
        return psp is not None and psp.capabilities.forgets_guests


def _discarding(unit: UnitOfWork, at_psps: AtPsps) -> Sequence[tuple[PspAccount, datetime]]:
    """Return the merchant account and the due time of each discard that is not done.

    `at_psps` are the guest's references at PSPs.
    """
    return [
        (psp_account, discard.due_at)
        for psp_account, reference in at_psps
        for discard in unit.discards.of_guest(psp_account, reference)
        if discard.due_at is not None
    ]


def _asked_about(unit: UnitOfWork, guest_id: GuestId) -> Sequence[tuple[PspAccount, datetime]]:
    """Return the merchant account and the next due time of each session that is still polled."""
    return [
        (session.configuration.psp_account, session.due_at)
        for session in unit.sessions.of_guest(guest_id)
        if session.due_at is not None
    ]
