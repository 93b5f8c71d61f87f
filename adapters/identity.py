"""Opaque access tokens: random text that says nothing, and is looked up by its hash."""

from __future__ import annotations

from dataclasses import dataclass

from typing_extensions import override

from domain.access.token import Identity, TokenState, hash_of
from domain.outside import Clock
from domain.permissions import Caller
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueTokens(Identity):
    """Recognizes callers by the tokens that were issued here."""

    storage: Storage
    clock: Clock

    @override
    def authenticate(self, token: str) -> Caller | None:
        # The lookup is by hash, so its duration reveals nothing about the tokens that exist.
        with self.storage.read() as unit:
            known = unit.access_tokens.get(hash_of(token))
        if known is None or known.state(self.clock.now()) is not TokenState.ACTIVE:
            return None
        return known.caller
