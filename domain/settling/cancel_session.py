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
    """Use case: end a guest's open session now, and close its page at the PSP.

    A card that the PSP collected before the cancellation is stored; a card collected later is
    discarded. The PSP's time and the service's time are compared directly, so their clocks must
    agree. If the session cannot be settled now, the reconciler settles it. A session that has ended
    or is already cancelled is not changed. Raises SessionNotFound if the guest has no such session
    at a center that the caller may see. Raises UserNotAuthorized without the permission, or if
    another caller started the session and this caller may not read the guest.
    """

    needs = MAY_ADD_CARDS

    storage: Storage
    settle: SettleSession
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> CardSession:
        """Cancel the session, and return it in its new state."""
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
            # The cancellation is already stored, whether or not this succeeds.
            with suppress(ServiceUnavailable):
                return self.settle(session.token_id) or session
        return session


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSessionsOfCaller:
    """Use case: cancel every open session of a caller; for operators.

    The reconciler then settles the sessions: it closes their pages at the PSP, and stores cards
    that were collected before the cancellation. After ServiceUnavailable some sessions may be
    cancelled; call again for the rest. Raises InvalidField for a caller that has no open session
    and never had a token.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, caller: str) -> int:
        """Cancel the sessions, and return their number."""
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

        # Each session in its own unit, so that others wait only briefly.
        count = 0
        for token_id in found:
            count += self.storage.transact(partial(cancel, token_id=token_id, is_first=not count))
        return count
