"""Links to guests' own pages."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from typing_extensions import override

from adapters.sql.repositories.repository import ById
from adapters.sql.rows import Rows
from domain.identifiers import GuestId
from domain.portal.portal_session import PortalId, PortalSession, PortalSessions

_PORTAL_SESSIONS = Rows("portal_sessions", PortalSession, key=("portal_id",))


class SqlPortalSessions(ById[PortalId, PortalSession], PortalSessions):
    """Stores portal sessions, which are the links to guests' own pages."""

    _rows = _PORTAL_SESSIONS

    @override
    def with_secret(self, secret_hash: str) -> PortalSession | None:
        return _PORTAL_SESSIONS.find_one(
            self._transaction,
            f"WHERE secret_hash = :secret_hash{self._transaction.for_update}",
            {"secret_hash": secret_hash},
        )

    @override
    def of(self, guest_id: GuestId) -> Sequence[PortalSession]:
        self._transaction.lock("portal sessions", guest_id)
        return _PORTAL_SESSIONS.find(
            self._transaction,
            "WHERE guest_id = :guest_id ORDER BY created_at, portal_id",
            {"guest_id": guest_id},
        )

    @override
    def remove(self, guest_id: GuestId) -> None:
        self._transaction.execute(
            "DELETE FROM portal_sessions WHERE guest_id = :guest_id", {"guest_id": guest_id}
        )

    @override
    def forget(self, *, before: datetime) -> int:
        return self._forget("portal_sessions", "portal_id", "created_at < :before", before=before)
