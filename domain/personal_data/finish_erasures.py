"""Finish erasures: have PSPs forget the guest, then blank what was needed for that."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from domain.centers.configure_payments import LoadedPsp
from domain.errors import ServiceUnavailable
from domain.events.note_event import NoteEvent
from domain.identifiers import GuestId, GuestReference, ProviderName, PspAccount
from domain.outside import Clock
from domain.personal_data.blank import end_and_blank
from domain.personal_data.erasure import Erasure, ErasureLog
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
"""Their PSPs are called one after the other, and other chores and events wait meanwhile."""

_AtPsps: TypeAlias = Sequence[tuple[PspAccount, GuestReference]]


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishErasures:
    """Use case: do what is left of a few erasures that are due; return whether more may be.

    Once the guest's sessions are over and their tokens discarded, each PSP is asked to forget the
    guest; then references, tokens and `redirect_uri`s are blanked, and overwritten in the files of
    the database. Where a PSP cannot forget guests, an expired session keeps its page: a card that
    turns up late there can only be discarded by it. What cannot be done now is due again later. May
    be called at any time, by several processes at once. Raises ServiceUnavailable or
    RecordUnreadable, once it has tried each.
    """

    storage: Storage
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
            if is_alarming(erasure.erased_at, self.clock.now()) and self._is_left(erasure.guest_id):
                self.log.not_done(erasure.guest_id)
        if failure is not None:
            raise failure
        return len(due) == MAX_PER_CALL

    def _finish(self, guest_id: GuestId) -> None:
        now = self.clock.now()

        def look(unit: WriteUnit) -> Erasure | None:
            # In a unit of its own, so that one that fails does not stay the first that is due.
            erasure = unit.erasures.get(guest_id)
            if erasure is None or erasure.due_at is None:
                # Another process has finished it.
                return None
            looked_at = erasure.looked_at(now)
            unit.erasures.update(looked_at)
            unit.commit()
            return looked_at

        def end(unit: WriteUnit) -> bool:
            are_over = end_and_blank(unit, self.note_event, guest_id, now)
            unit.commit()
            return are_over

        def blank(unit: WriteUnit) -> bool:
            # While a PSP was called, a card may have turned up that must be discarded first.
            are_over = end_and_blank(unit, self.note_event, guest_id, now)
            is_known = set(unit.guest_references.of(guest_id)) <= set(at_psps)
            is_left = not are_over or not is_known or _is_discarding(unit, at_psps)
            if not is_left:
                self._blank_the_rest(unit, guest_id, at_psps)
            unit.commit()
            return not is_left

        looked_at = self.storage.transact(look)
        if looked_at is None or not self.storage.transact(end) or not looked_at.may_be_done(now):
            return

        with self.storage.read() as unit:
            at_psps = unit.guest_references.of(guest_id)
            is_discarding = _is_discarding(unit, at_psps)
        if (
            not is_discarding
            and self._forget(looked_at, at_psps)
            and self.storage.transact(blank)
            and self.storage.overwrite_deleted()
            and self._note(looked_at, looked_at.done(self.clock.now()))
        ):
            self.log(guest_id, is_done=True)

    def _is_left(self, guest_id: GuestId) -> bool:
        with self.storage.read() as unit:
            erasure = unit.erasures.get(guest_id)
        return erasure is not None and erasure.done_at is None

    def _note(self, looked_at: Erasure, changed: Erasure) -> bool:
        """Store what has become of an erasure, unless it is due at another time by now.

        That is so if more has turned up since, or if another process has looked.
        """

        def note(unit: WriteUnit) -> bool:
            if unit.erasures.get(looked_at.guest_id) != looked_at:
                return False
            unit.erasures.update(changed)
            unit.commit()
            return True

        return self.storage.transact(note)

    def _forget(self, looked_at: Erasure, at_psps: _AtPsps) -> bool:
        """Have each PSP forget the guest; return whether all have.

        One that does not know the guest may not know the guest yet, and is asked again.
        """
        have_all, is_unknown, now = True, False, self.clock.now()
        for psp_account, reference in at_psps:
            try:
                self.providers[psp_account.provider].forget_guest(
                    psp_account.merchant_account, reference
                )
            except NotFound:
                is_unknown = True
            except (ProviderUnavailable, ProviderRefused):
                have_all = False
        if have_all and is_unknown and not is_confirmed(looked_at.unknown_since, now):
            self._note(looked_at, looked_at.unknown(now))
            return False
        return have_all

    def _blank_the_rest(self, unit: WriteUnit, guest_id: GuestId, at_psps: _AtPsps) -> None:
        """Blank references and tokens, which no PSP knows any more."""
        for session in unit.sessions.of_guest(guest_id):
            if session.is_settled or self._forgets(session):
                unit.sessions.update(session.without_references())
            if self._forgets(session):
                unit.earlier_pages.remove(session.token_id)
        unit.accounts.blank(guest_id)
        for psp_account, reference in at_psps:
            for discard in unit.discards.of_guest(*psp_account, reference):
                unit.discards.remove(discard)
        unit.guest_references.remove(guest_id)

    def _forgets(self, session: CardSession) -> bool:
        psp = self.psps.get(session.configuration.provider)
        return psp is not None and psp.capabilities.forgets_guests


def _is_discarding(unit: UnitOfWork, at_psps: _AtPsps) -> bool:
    """Return whether a token of the guest is still to be discarded."""
    return any(
        discard.done_at is None
        for psp_account, reference in at_psps
        for discard in unit.discards.of_guest(*psp_account, reference)
    )
