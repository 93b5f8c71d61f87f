"""Search the card-addition sessions of all guests, for an operator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from domain.centers.center import CenterNotFound
from domain.fields import parse_uuid
from domain.identifiers import CenterId, GuestId
from domain.outside import Clock, time_before
from domain.sessions.session import CardSession, SessionFilter, SessionStatus
from domain.storage import Storage

USUAL_TIME: Final = timedelta(days=7)
"""How far back sessions are searched for, unless a guest or a center is given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSessions:
    """Use case: return sessions, newest first.

    `within` is the time until now in which they were created; by default 7 days, or any time of a
    guest or a center. The guest need not be on file. Raises InvalidField or CenterNotFound.
    """

    storage: Storage
    clock: Clock

    def __call__(
        self,
        *,
        guest: str | None = None,
        center: str | None = None,
        status: SessionStatus | None = None,
        within: timedelta | None = None,
        limit: int,
    ) -> Sequence[CardSession]:
        guest_id = None if guest is None else GuestId(parse_uuid("guest", guest))
        center_id = None if center is None else CenterId(parse_uuid("center", center))
        if within is None and guest_id is None and center_id is None:
            within = USUAL_TIME
        since = None if within is None else time_before(self.clock.now(), within)
        with self.storage.read() as unit:
            if center_id is not None and unit.centers.get(center_id) is None:
                raise CenterNotFound(center_id)
            wanted = SessionFilter(
                guest_id=guest_id, center_id=center_id, status=status, created_since=since
            )
            return unit.sessions.search(wanted, limit=limit)
