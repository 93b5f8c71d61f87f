"""Store a change that a request from the guest's browser makes to a session."""

from __future__ import annotations

from collections.abc import Callable

from domain.sessions.session import CardSession
from domain.storage import Storage, WriteUnit


def store_change(
    storage: Storage, seen: CardSession, change: Callable[[CardSession], CardSession | None]
) -> bool:
    """Apply `change` to the stored state of the session `seen`, store the result, and return True.

    If `change` returns None, store nothing and return False.
    """

    def store(unit: WriteUnit) -> bool:
        session = unit.sessions.get(seen.token_id) or seen
        changed = change(session)
        if changed is not None and changed != session:
            unit.sessions.update(changed)
            unit.commit()
        return changed is not None

    return storage.transact(store)
