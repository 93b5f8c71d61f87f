"""Portal sessions: links to a guest's own page, and the visits of browsers to the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NewType, Protocol

from domain.access.token import hash_of
from domain.identifiers import CallerName, CenterId, GuestId

PortalId = NewType("PortalId", str)

MAX_PORTAL_SESSIONS: Final = 20
"""The maximum number of portal sessions that can be opened for a guest and a center in 24 hours.

They are counted for each center, so that one shop cannot use up the links of another shop.
"""
MAX_VISITS: Final = 20
"""The maximum number of visits that a portal session has at the same time. A further visit ends the
oldest visit.
"""
VISIT_LIFETIME: Final = timedelta(hours=1)
KEPT_FOR: Final = timedelta(days=7)
"""How long a portal session is stored, so that an expired link can show advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalVisit:
    """The visit of one browser to the page.

    `secret_hash` is the SHA-256 of the secret in the browser's cookie, in hexadecimal.
    """

    secret_hash: str
    ends_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalSession:
    """A link to a guest's own page at a center.

    `caller` made the link with an access token. `secret_hash` is the SHA-256 of the link's secret
    in hexadecimal, and `access_token_hash` is that of the access token. `shows_guest` is whether
    the caller may read guests. If it is set, the page shows the guest's masked name and email
    address. Several browsers may use the link until `expires_at`. `return_uri` leads back to the
    shop. `locale` is the requested language, or `auto` for the browser's language.
    """

    portal_id: PortalId
    secret_hash: str
    guest_id: GuestId
    center_id: CenterId
    caller: CallerName
    access_token_hash: str
    shows_guest: bool
    return_uri: str
    locale: str | None
    created_at: datetime
    expires_at: datetime
    visits: tuple[PortalVisit, ...] = ()

    def entered(self, secret: str, now: datetime) -> PortalSession:
        """Return a copy of this session with one more visit.

        `secret` is the secret in the cookie of the visiting browser.
        """
        visit = PortalVisit(secret_hash=hash_of(secret), ends_at=now + VISIT_LIFETIME)
        going_on = [each for each in self.visits if now < each.ends_at]
        return replace(self, visits=(*going_on, visit)[-MAX_VISITS:])

    def ended(self, now: datetime) -> PortalSession:
        """Return a copy of this session whose link has expired and whose visits have ended."""
        return replace(self, expires_at=min(self.expires_at, now), visits=())

    def has_visit(self, secret: str, now: datetime) -> bool:
        """Return whether the browser with this secret is visiting the page at `now`."""
        return any(
            each.secret_hash == hash_of(secret) and now < each.ends_at for each in self.visits
        )


class PortalSessions(Protocol):
    """Repository of portal sessions."""

    def add(self, session: PortalSession) -> None:
        """Store a new portal session."""
        ...

    def get(self, portal_id: PortalId) -> PortalSession | None:
        """Return the portal session, or None. It is not locked, even in a write unit."""
        ...

    def with_secret(self, secret_hash: str) -> PortalSession | None:
        """Return the portal session whose link's secret has this hash, or None.

        In a write unit, this call also locks the portal session.
        """
        ...

    def update(self, session: PortalSession) -> None:
        """Replace a stored portal session."""
        ...

    def of(self, guest_id: GuestId) -> Sequence[PortalSession]:
        """Return a guest's portal sessions, oldest first.

        If a write unit has called this method, other write units that call it for the same guest
        wait until the first unit ends.
        """
        ...

    def remove(self, guest_id: GuestId) -> None:
        """Delete all portal sessions of a guest, if any."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete portal sessions created before the given time, a limited number per call.

        Return how many were deleted.
        """
        ...
