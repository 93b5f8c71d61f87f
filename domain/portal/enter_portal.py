"""A guest's browser begins a visit to the guest's own page."""

from __future__ import annotations

from dataclasses import dataclass

from domain.outside import Clock, Ids
from domain.portal.find_portal import cookie_of, find_link
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class EnterPortal:
    """Use case: begin a visit of one hour, and return the value of the browser's cookie.

    A link may be used several times until it expires, because some programs open links twice. Each
    call begins another visit. Raises PortalUnknown or PortalExpired.
    """

    storage: Storage
    clock: Clock
    ids: Ids

    def __call__(self, secret: str) -> str:
        own, now = self.ids.secret(), self.clock.now()

        def enter(unit: WriteUnit) -> str:
            session = find_link(unit, secret, now).session
            unit.portal_sessions.update(session.entered(own, now))
            unit.commit()
            return cookie_of(session, own)

        return self.storage.transact(enter)
