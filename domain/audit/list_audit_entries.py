"""List the audit trail."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from domain.audit.entry import AuditEntry
from domain.outside import Clock, time_before
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAuditEntries:
    """Use case: return what was done, newest first.

    Only in the time of this length until now, and only to one thing, if that is given.
    """

    storage: Storage
    clock: Clock

    def __call__(
        self, *, within: timedelta | None = None, about: str | None = None
    ) -> Sequence[AuditEntry]:
        since = None if within is None else time_before(self.clock.now(), within)
        with self.storage.read() as unit:
            return unit.audit_trail.latest(since=since, about=about)
