"""Cancel a card-addition session."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from domain.audit.entry import Action, actor_of
from domain.audit.note_act import NoteAct
from domain.errors import InvalidField, ServiceUnavailable, UserNotAuthorized
from domain.identifiers import CallerName, TokenId
from domain.outside import Clock
from domain.permissions import MAY_ADD_CARDS, Caller
from domain.sessions.find_session import may_have_link, session_of_guest
from domain.sessions.session import CardSession
from domain.settling.settle_session import SettleSession
from domain.storage import RecordUnreadable, Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSession:
    """Use case: cancel a guest's open session, and close its page at the PSP.

    A card that the PSP collected before the cancellation is stored, and a card that it collected
    later is discarded. For this, the PSP's clock and the service's clock must agree. If the session
    cannot be settled now, the worker settles it. A session that has ended or is already cancelled
    does not change.

    Raises SessionNotFound if the guest has no such session at a center that the caller may see.
    Raises UserNotAuthorized if the caller lacks the permission, or if another caller started the
    session and this caller may not read the guest.
    """

    needs = MAY_ADD_CARDS

    storage: Storage
    settle: SettleSession
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> CardSession:
        """Cancel the session, and return its new state."""
        caller.require(self.needs)
        now = self.clock.now()

        def cancel(unit: WriteUnit) -> CardSession:
            session = session_of_guest(unit, caller, guest_id=guest_id, token_id=token_id)
            if not may_have_link(caller, session):
                raise UserNotAuthorized
            cancelled = session.cancelled(now, by=actor_of(caller.name))
            if cancelled != session:
                unit.sessions.update(cancelled)
                unit.commit()
            return cancelled

        session = self.storage.transact(cancel)
        if not session.is_over:
            # The cancellation is stored already, so settling may fail.
            with suppress(ServiceUnavailable):
                return self.settle(session.token_id) or session
        return session


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSessionsOfCaller:
    """Use case: cancel every open session of a caller. Only operators call it.

    The worker then settles the sessions: it closes their pages at the PSP, and stores cards that
    were collected before the cancellation. Raises InvalidField for a caller that has no open
    session and never had a token. If this raises ServiceUnavailable, some sessions may
    already be cancelled. Repeat the call to cancel the others.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, caller: str) -> int:
        """Cancel all open sessions that `caller` started, and return how many were cancelled."""
        now = self.clock.now()
        with self.storage.read() as unit:
            found = unit.sessions.open_of(CallerName(caller))
            # Callers of an identity provider have no token here.
            if not found and caller not in {
                token.caller.name for token in unit.access_tokens.all()
            }:
                expected = "a caller that `cardonfile token list` shows, or that has open sessions"
                raise InvalidField("caller", expected)

        def cancel(unit: WriteUnit, token_id: TokenId, is_first: bool) -> bool:
            # Skip a session that cannot be decoded: the log names it, and its link does not open.
            with suppress(RecordUnreadable):
                session = unit.sessions.get(token_id)
                cancelled = session and session.cancelled(now, by=self.note_act.operator)
                if cancelled is not None and cancelled != session:
                    unit.sessions.update(cancelled)
                    if is_first:
                        self.note_act(unit, Action.SESSIONS_CANCELLED, caller, {"open": len(found)})
                    unit.commit()
                    return True
            return False

        # Each session has a separate unit, so that other units wait only briefly.
        count = 0
        for token_id in found:
            count += self.storage.transact(partial(cancel, token_id=token_id, is_first=not count))
        return count
