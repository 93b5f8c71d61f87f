"""Read the state of a card-addition session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from domain.outside import Clock
from domain.permissions import MAY_ADD_CARDS, MAY_VIEW_CARDS, Caller
from domain.sessions.find_session import session_of_guest
from domain.sessions.session import CardSession
from domain.storage import Storage


class FoundSession(NamedTuple):
    """A session, and whether its link works and the caller may have it."""

    session: CardSession
    shows_link: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSession:
    """Use case: return a card-addition session of a guest.

    Raises UserNotAuthorized, or SessionNotFound when the guest has no such session in a center
    that the caller may see.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> FoundSession:
        caller.require(self.needs)
        with self.storage.read() as unit:
            session = session_of_guest(unit, caller, guest_id=guest_id, token_id=token_id)
        return FoundSession(
            session, caller.may(MAY_ADD_CARDS) and session.has_link(self.clock.now())
        )
