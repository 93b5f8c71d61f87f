"""The audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from typing_extensions import override

from adapters.sql.repositories.repository import Repository, where
from adapters.sql.rows import Rows
from domain.audit.entry import AuditEntry, AuditTrail
from domain.pagination import ALL

_ENTRIES = Rows("audit_entries", AuditEntry, key=("entry_id",))


class SqlAuditTrail(Repository, AuditTrail):
    """Stores the entries of the audit trail."""

    @override
    def add(self, entry: AuditEntry) -> None:
        self._transaction.execute(_ENTRIES.insert, _ENTRIES.row(entry))

    @override
    def forget(self, *, before: datetime) -> int:
        condition = "happened_at < :before ORDER BY happened_at"
        return self._forget("audit_entries", "entry_id", condition, before=before)

    @override
    def latest(
        self,
        *,
        since: datetime | None = None,
        about: str | None = None,
        by: str | None = None,
        limit: int = ALL,
    ) -> Sequence[AuditEntry]:
        conditions = {
            "happened_at >= :since": since,
            "about = :about": about,
            "actor IN (:by, 'caller:' || :by, 'user:' || :by)": by,
        }
        return _ENTRIES.find_readable(
            self._transaction,
            f"{where(conditions)}ORDER BY happened_at DESC, entry_id DESC LIMIT :limit",
            {"since": since, "about": about, "by": by, "limit": limit},
        )
