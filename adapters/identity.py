"""Authentication by opaque access tokens.

Opaque access tokens are random texts. The storage finds them by their hash.
"""

from __future__ import annotations

from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime

from typing_extensions import override

from domain.access.token import Identity, TokenState, hash_of
from domain.errors import ServiceUnavailable
from domain.outside import Clock
from domain.permissions import Caller
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueTokens(Identity):
    """Recognizes callers by the tokens that this installation has issued.

    `writer` runs in another thread, and stores when each token was last used. A request therefore
    does not have to wait until it may write to the database.
    """

    storage: Storage
    clock: Clock
    writer: Executor
    _submitted: dict[str, datetime] = field(default_factory=dict, init=False)

    @override
    def authenticate(self, token: str) -> Caller | TokenState:
        # The lookup is by hash, so its duration reveals nothing about existing tokens.
        with self.storage.read() as unit:
            known = unit.access_tokens.get(hash_of(token))
        now = self.clock.now()
        if known is None:
            return TokenState.UNKNOWN
        state = known.state(now)
        if state is not TokenState.ACTIVE:
            return state
        hour = known.hour_to_note(now)
        # A write that is still waiting, or that has failed, is not repeated in the same hour.
        if hour is not None and self._submitted.get(known.token_hash) != hour:
            self._submitted[known.token_hash] = hour
            # While the process is ending, nothing can be submitted.
            with suppress(RuntimeError):
                self.writer.submit(self._note_use, known.token_hash, hour)
        return known.caller

    def _note_use(self, token_hash: str, hour: datetime) -> None:
        with suppress(ServiceUnavailable), self.storage.write() as unit:
            unit.access_tokens.note_use(token_hash, hour)
            unit.commit()
