"""Read the state of a card-addition session."""

from __future__ import annotations

from dataclasses import dataclass

from domain.permissions import MAY_VIEW_CARDS, Caller
from domain.sessions.find_session import session_of_guest
from domain.sessions.session import CardSession
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSession:
    """Use case: return a card-addition session of a guest.

    Raises UserNotAuthorized, or SessionNotFound when the guest has no such session in a center
    that the caller may see.
    """

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> CardSession:
        caller.require(MAY_VIEW_CARDS)
        with self.storage.read() as unit:
            return session_of_guest(unit, caller, guest_id=guest_id, token_id=token_id)
