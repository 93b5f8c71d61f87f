"""Delete the record of old deliveries."""

from __future__ import annotations

from dataclasses import dataclass

from domain.events import DELIVERIES_ARE_KEPT_FOR
from domain.ports import Clock, Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetEventDeliveries:
    """Use case: delete the deliveries of events that happened more than 30 days ago.

    One that is still due stays. Each unit of work deletes a bounded number, so that others can
    write in between. May be called at any time. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock

    def __call__(self) -> None:
        """Delete all of them, or none while the clock is not steady."""
        if not self.clock.is_steady():
            return
        before = self.clock.now() - DELIVERIES_ARE_KEPT_FOR

        def forget(unit: WriteUnit) -> int:
            forgotten = unit.event_deliveries.forget(before=before)
            unit.commit()
            return forgotten

        while self.storage.transact(forget):
            pass
