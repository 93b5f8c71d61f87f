"""The installation to which the records belong."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from datetime import datetime
from typing import Final

from typing_extensions import override

from adapters.sql.repositories.repository import Repository
from domain.installation.installation import Installation, Installations

_DETACH: Final = {
    "endpoints": "DELETE FROM event_endpoints",
    "events": "DELETE FROM events",
    "deliveries": "DELETE FROM event_deliveries WHERE due_at IS NOT NULL",
    "discards": "DELETE FROM discards",
    "portal_sessions": "DELETE FROM portal_sessions",
    "readings": (
        "UPDATE payment_accounts SET due_at = NULL, asked_at = NULL, unanswered_since = NULL "
        "WHERE due_at IS NOT NULL"
    ),
    "tokens": "UPDATE access_tokens SET revoked_at = :now WHERE revoked_at IS NULL",
    "merchants": "UPDATE merchant_identities SET of_original = (1 = 1)",
}


class SqlInstallations(Repository, Installations):
    """Stores the installation in a single row. Before the first start, there is no row."""

    @override
    def get(self) -> Installation:
        self._transaction.lock("installation")
        row = self._transaction.execute(
            "SELECT origin, is_copy FROM installations WHERE id = 1"
        ).fetchone()
        return Installation() if row is None else Installation(origin=row[0], is_copy=bool(row[1]))

    @override
    def put(self, installation: Installation) -> None:
        self._transaction.execute(
            "INSERT INTO installations (id, origin, is_copy) VALUES (1, :origin, :is_copy) "
            "ON CONFLICT (id) DO UPDATE SET origin = excluded.origin, is_copy = excluded.is_copy",
            asdict(installation),
        )

    @override
    def detach_from_original(self, now: datetime) -> Mapping[str, int]:
        return {
            kind: self._transaction.execute(
                statement, {"now": now} if ":now" in statement else None
            ).rowcount
            for kind, statement in _DETACH.items()
        }
