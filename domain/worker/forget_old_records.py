"""Delete what is kept for a time only: idempotency keys, and the record of deliveries."""

from __future__ import annotations

from dataclasses import dataclass

from domain.events.event import DELIVERIES_ARE_KEPT_FOR
from domain.outside import Clock
from domain.sessions.session import IDEMPOTENCY_KEYS_LAST
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetOldRecords:
    """Use case: delete idempotency keys and deliveries of events that are no longer needed.

    A key goes 24 hours after its use. A delivery goes 30 days after its event, unless it is still
    due. Each unit of work deletes a bounded number, so that others can write in between. May be
    called at any time. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock

    def __call__(self) -> None:
        """Delete all of them, or none while the clock is not steady."""
        if not self.clock.is_steady():
            return
        now = self.clock.now()

        def forget_keys(unit: WriteUnit) -> int:
            forgotten = unit.idempotency_keys.forget(before=now - IDEMPOTENCY_KEYS_LAST)
            unit.commit()
            return forgotten

        def forget_deliveries(unit: WriteUnit) -> int:
            forgotten = unit.event_deliveries.forget(before=now - DELIVERIES_ARE_KEPT_FOR)
            unit.commit()
            return forgotten

        try:
            while self.storage.transact(forget_keys):
                pass
        finally:
            # Also when one table cannot be written: the other holds what is known of guests.
            while self.storage.transact(forget_deliveries):
                pass
