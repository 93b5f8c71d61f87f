"""Delete what is kept for a time only."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

from domain.errors import ServiceUnavailable
from domain.outside import Clock, time_before
from domain.sessions.session import IDEMPOTENCY_KEYS_LAST
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """How long records are kept.

    Sessions with their evidence and refused cards after their end, deliveries after their event,
    cards with their consents after their removal, and entries of the audit trail.
    """

    sessions: timedelta = timedelta(days=400)
    deliveries: timedelta = timedelta(days=30)
    cards: timedelta = timedelta(days=400)
    audit: timedelta = timedelta(days=3 * 365)


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOldRecords:
    """Use case: delete idempotency keys after 24 hours, and the rest after its `retention`.

    What is due, open or to be discarded is never deleted. Each unit of work deletes a bounded
    number, and `rest` is called in between, so that others can write. May be called at any time.
    Raises ServiceUnavailable, once it has tried each kind of record.
    """

    storage: Storage
    clock: Clock
    retention: Retention
    rest: Callable[[], None]

    def __call__(self) -> None:
        """Delete all of them, or none while the clock is not steady."""
        if not self.clock.is_steady():
            return
        now, kept = self.clock.now(), self.retention
        sessions, deliveries = time_before(now, kept.sessions), time_before(now, kept.deliveries)
        cards, audit = time_before(now, kept.cards), time_before(now, kept.audit)
        unavailable: ServiceUnavailable | None = None
        for forget in (
            lambda unit: unit.idempotency_keys.forget(before=now - IDEMPOTENCY_KEYS_LAST),
            lambda unit: unit.event_deliveries.forget(before=deliveries),
            lambda unit: unit.sessions.forget(before=sessions),
            lambda unit: unit.accounts.forget(before=cards),
            lambda unit: unit.audit_trail.forget(before=audit),
        ):
            try:
                self._all(forget)
            except ServiceUnavailable as error:
                # The other tables hold what is known of guests.
                unavailable = unavailable or error
        if unavailable is not None:
            raise unavailable

    def _all(self, forget: Callable[[WriteUnit], int]) -> None:
        def some(unit: WriteUnit) -> int:
            forgotten = forget(unit)
            unit.commit()
            return forgotten

        while self.storage.transact(some):
            self.rest()
