"""Portal sessions: links to a guest's own page, and the browsers that entered it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NewType, Protocol

from domain.access.token import hash_of
from domain.identifiers import CallerName, CenterId, GuestId

PortalId = NewType("PortalId", str)

MAX_PORTAL_SESSIONS: Final = 20
"""How many portal sessions a guest may have in 24 hours."""
MAX_VISITS: Final = 20
"""How many browsers a portal session remembers. Another browser ends the oldest visit."""
VISITS_LAST: Final = timedelta(hours=1)
KEPT_FOR: Final = timedelta(days=7)
"""How long a portal session is stored, so that an old link leads to advice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalVisit:
    """A browser that entered the page. `secret_hash` is the SHA-256 of its cookie's secret."""

    secret_hash: str
    ends_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalSession:
    """A link to a guest's own page at a center, which `caller` made.

    `secret_hash` and `access_token_hash` are SHA-256 in hexadecimal: of the link's secret, and of the
    access token with which `caller` made the link. `shows_guest` is whether the page may show the
    guest's masked name and email address, because the caller may read them. The link may be used
    until `expires_at`, by several browsers. `return_uri` leads back to the shop. `locale` is the requested
    language, or `auto` for the browser's.
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
        """Return the session with the visit of a browser that has this secret."""
        visit = PortalVisit(secret_hash=hash_of(secret), ends_at=now + VISITS_LAST)
        going_on = [each for each in self.visits if now < each.ends_at]
        return replace(self, visits=(*going_on, visit)[-MAX_VISITS:])

    def ended(self, now: datetime) -> PortalSession:
        """Return the session with a link that has expired, and without visits."""
        return replace(self, expires_at=min(self.expires_at, now), visits=())

    def has_visit(self, secret: str, now: datetime) -> bool:
        """Return whether the visit of a browser with this secret goes on."""
        return any(
            each.secret_hash == hash_of(secret) and now < each.ends_at for each in self.visits
        )


class PortalSessions(Protocol):
    """The links to guests' own pages."""

    def add(self, session: PortalSession) -> None:
        """Store a new portal session."""
        ...

    def get(self, portal_id: PortalId) -> PortalSession | None:
        """Return the portal session, or None. Locks nothing."""
        ...

    def with_secret(self, secret_hash: str) -> PortalSession | None:
        """Return the portal session with this hash of the link's secret. A write unit locks it."""
        ...

    def update(self, session: PortalSession) -> None:
        """Store a portal session that exists."""
        ...

    def of(self, guest_id: GuestId) -> Sequence[PortalSession]:
        """Return a guest's portal sessions, oldest first.

        Other write units that call this for the guest wait until the unit ends.
        """
        ...

    def remove(self, guest_id: GuestId) -> None:
        """Delete a guest's portal sessions. May be called again."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a limited number of portal sessions made before a time; return the number."""
        ...
