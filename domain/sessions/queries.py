"""Use cases that read card-addition sessions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from domain.errors import GuestNotFound, InvalidField
from domain.guests.guest import parse_guest_id
from domain.outside import Clock
from domain.pagination import Page, PageRequest
from domain.permissions import MAY_ADD_CARDS, MAY_VIEW_CARDS, Caller
from domain.sessions.end import SessionStatus
from domain.sessions.find_session import may_have_link, session_of_guest
from domain.sessions.reference import EXPECTED_TEXT, parse_reference
from domain.sessions.session import CardSession
from domain.storage import Storage


class FoundSession(NamedTuple):
    """A session, and whether its link works and may be shown to the caller."""

    session: CardSession
    shows_link: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadSession:
    """Use case: return a guest's card-addition session.

    Raises UserNotAuthorized, or SessionNotFound if the guest has no such session at a center that
    the caller may see.
    """

    needs = MAY_VIEW_CARDS

    storage: Storage
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> FoundSession:
        caller.require(self.needs)
        with self.storage.read() as unit:
            session = session_of_guest(unit, caller, guest_id=guest_id, token_id=token_id)
        has_link = session.has_link(self.clock.now())
        return FoundSession(session, has_link and may_have_link(caller, session))


@dataclass(frozen=True, slots=True, kw_only=True)
class ListSessions:
    """Use case: return a page of a guest's sessions, newest first.

    The list includes sessions that other callers started, so the caller must be allowed to add
    cards. Only sessions at centers that the caller may see are returned and counted. `statuses` and
    `references` contain the unparsed values of the query; an empty list means that there is no
    filter. Raises UserNotAuthorized, InvalidField, GuestIdNotUsable or GuestNotFound, in this
    order.
    """

    needs = MAY_ADD_CARDS

    storage: Storage

    def __call__(
        self,
        caller: Caller,
        *,
        guest_id: str,
        statuses: Sequence[str] = (),
        references: Sequence[str] = (),
        page: PageRequest,
    ) -> Page[CardSession]:
        caller.require(self.needs)
        status = _parse_status(statuses)
        reference = _parse_one_reference(references)
        guest = parse_guest_id(guest_id)
        with self.storage.read() as unit:
            if unit.guests.get(guest) is None:
                raise GuestNotFound
            return unit.sessions.page(
                guest, caller.centers, page, status=status, reference=reference
            )


def _parse_status(statuses: Sequence[str]) -> SessionStatus | None:
    if not statuses:
        return None
    if len(statuses) > 1 or statuses[0] not in set(SessionStatus):
        raise InvalidField("status", f"one of {', '.join(SessionStatus)}")
    return SessionStatus(statuses[0])


def _parse_one_reference(references: Sequence[str]) -> str | None:
    if len(references) > 1:
        raise InvalidField("reference", "given once")
    return parse_reference(references[0], EXPECTED_TEXT) if references else None
