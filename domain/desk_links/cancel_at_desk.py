"""Cancel a session at the front desk."""

from __future__ import annotations

from dataclasses import dataclass

from domain.desk_links.find_desk import find_desk
from domain.outside import Clock
from domain.settling.cancel_session import CancelSession
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelAtDesk:
    """Use case: cancel the session of a desk link on behalf of the caller who made the desk link.

    May be called more than once, like CancelSession. Raises DeskLinkUnknown or DeskLinkStopped.
    """

    storage: Storage
    cancel_session: CancelSession
    clock: Clock

    def __call__(self, secret: str) -> None:
        with self.storage.read() as unit:
            _, caller, session = find_desk(unit, secret, self.clock.now())
        self.cancel_session(caller, guest_id=session.guest_id, token_id=session.token_id)
