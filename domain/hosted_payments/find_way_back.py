"""Find the shop that a guest came from, for an error page."""

from __future__ import annotations

from dataclasses import dataclass

from domain.hosted_payments.link import LinkUnknown, session_of_link
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class WayBack:
    """Where a guest came from: the stored `redirect_uri`, and the center's name if it still exists."""

    redirect_uri: str
    center_name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FindWayBack:
    """Use case: find the way back for an error page that a guest is shown.

    Changes nothing. Raises ServiceUnavailable.
    """

    storage: Storage

    def __call__(self, *, token_id: str) -> WayBack | None:
        """Return the way back of a session, or None when no session has this token."""
        try:
            session = session_of_link(self.storage, token_id)
        except LinkUnknown:
            return None
        with self.storage.read() as unit:
            center = unit.centers.get(session.center_id)
        return WayBack(
            redirect_uri=session.redirect_uri, center_name=center.name if center else None
        )
