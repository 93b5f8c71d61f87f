"""Find the session of a guest for a caller."""

from __future__ import annotations

from datetime import datetime

from domain.errors import SessionEnded, SessionNotFound, UserNotAuthorized
from domain.identifiers import TokenId, plain_uuid
from domain.permissions import MAY_ADD_CARDS, MAY_VIEW_GUESTS, Caller
from domain.sessions.session import CardSession
from domain.storage import UnitOfWork


def session_of_guest(
    unit: UnitOfWork, caller: Caller, *, guest_id: str, token_id: str
) -> CardSession:
    """Return a guest's session.

    Raises SessionNotFound if there is no such session, or if the caller may not see its center.
    """
    known_id = plain_uuid(token_id)
    session = unit.sessions.get(TokenId(known_id)) if known_id else None
    if (
        session is None
        or session.guest_id != plain_uuid(guest_id)
        or not caller.sees(session.center_id)
    ):
        raise SessionNotFound
    return session


def may_have_link(caller: Caller, session: CardSession) -> bool:
    """Return whether a caller may see the link of a session, or cancel the session.

    The page behind the link shows data that the session's caller sent, such as an address. Other
    callers therefore need the permission to read the guest.
    """
    is_its_own = session.caller == caller.name
    return caller.may(MAY_ADD_CARDS) and (is_its_own or caller.may(MAY_VIEW_GUESTS))


def session_with_link(
    unit: UnitOfWork, caller: Caller, *, guest_id: str, token_id: str, now: datetime
) -> CardSession:
    """Return a guest's session whose link works and may be shown to the caller.

    Raises SessionNotFound, UserNotAuthorized or SessionEnded, in this order.
    """
    session = session_of_guest(unit, caller, guest_id=guest_id, token_id=token_id)
    if not may_have_link(caller, session):
        raise UserNotAuthorized
    if not session.has_link(now):
        raise SessionEnded
    return session
