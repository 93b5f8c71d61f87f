"""Cancel a card-addition session."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from domain.card_sessions import CardSession, SessionStatus
from domain.errors import ServiceUnavailable
from domain.permissions import MAY_ADD_CARDS, Caller
from domain.ports import Clock, Storage, WriteUnit
from domain.read_session import session_of_guest
from domain.settle_session import SettleSession


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelSession:
    """Use case: end an open session of a guest now, and close its page at the PSP.

    A card that the PSP collected before is stored; one collected later is discarded. Both times are
    compared as they are, so the PSP's clock and ours must agree. If the session cannot be settled
    now, the reconciler settles it. A session that has ended, or was cancelled before, does not
    change. Raises UserNotAuthorized, or SessionNotFound when the guest has no such session in a
    center that the caller may see.
    """

    storage: Storage
    settle: SettleSession
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> CardSession:
        """Cancel the session, and return it as it is then."""
        caller.require(MAY_ADD_CARDS)
        now = self.clock.now()

        def cancel(unit: WriteUnit) -> CardSession:
            session = session_of_guest(unit, caller, guest_id=guest_id, token_id=token_id)
            cancelled = session.cancelled(now)
            if cancelled != session:
                unit.sessions.update(cancelled)
                unit.commit()
            return cancelled

        session = self.storage.transact(cancel)
        if session.status is SessionStatus.OPEN:
            # It is cancelled by now, whatever becomes of this.
            with suppress(ServiceUnavailable):
                return self.settle(session.token_id) or session
        return session
