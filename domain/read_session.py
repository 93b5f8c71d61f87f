"""Read the state of a card-addition session."""

from __future__ import annotations

from dataclasses import dataclass

from domain.card_sessions import CardSession
from domain.errors import SessionNotFound
from domain.identifiers import TokenId, plain_uuid
from domain.permissions import MAY_VIEW_CARDS, Caller
from domain.ports import Storage, UnitOfWork


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSession:
    """Use case: return a card-addition session of a guest.

    Raises UserNotAuthorized, or SessionNotFound when the guest has no such session in a center
    that the caller may see.
    """

    storage: Storage

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> CardSession:
        """Look the session up; changes nothing."""
        caller.require(MAY_VIEW_CARDS)
        with self.storage.read() as unit:
            return session_of_guest(unit, caller, guest_id=guest_id, token_id=token_id)


def session_of_guest(
    unit: UnitOfWork, caller: Caller, *, guest_id: str, token_id: str
) -> CardSession:
    """Return a guest's session that the caller may see. Raises SessionNotFound."""
    known_id = plain_uuid(token_id)
    session = unit.sessions.get(TokenId(known_id)) if known_id else None
    if (
        session is None
        or session.guest_id != plain_uuid(guest_id)
        or not caller.sees(session.center_id)
    ):
        raise SessionNotFound
    return session
