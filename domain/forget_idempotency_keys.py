"""Delete idempotency keys that are no longer valid."""

from __future__ import annotations

from dataclasses import dataclass

from domain.add_card import IDEMPOTENCY_KEYS_LAST
from domain.ports import Clock, Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgetIdempotencyKeys:
    """Use case: delete the keys that were used more than 24 hours ago.

    Each unit of work deletes a bounded number, so that others can write in between. May be called
    at any time. Raises ServiceUnavailable.
    """

    storage: Storage
    clock: Clock

    def __call__(self) -> None:
        """Delete all of them, or none while the clock is not steady."""
        if not self.clock.is_steady():
            return
        before = self.clock.now() - IDEMPOTENCY_KEYS_LAST

        def forget(unit: WriteUnit) -> int:
            forgotten = unit.idempotency_keys.forget(before=before)
            unit.commit()
            return forgotten

        while self.storage.transact(forget):
            pass
