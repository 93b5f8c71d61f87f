"""Looking up what an Idempotency-Key stands for, without leaving a trace."""

from __future__ import annotations

from datetime import datetime

from domain.identifiers import CallerName, TokenId
from domain.ports import Storage
from tests.builders import a_uuid


def holder_of(storage: Storage, caller: CallerName, key: str, *, since: datetime) -> TokenId | None:
    """Give the session that a key was used for after that time; None if it is free."""
    nobody = TokenId(a_uuid(999))
    with storage.write() as unit:
        holder = unit.idempotency_keys.claim(caller, key, nobody, now=since, since=since)
    return None if holder == nobody else holder
