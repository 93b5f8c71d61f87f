"""List the access tokens that were issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from domain.access.token import AccessToken, TokenState
from domain.outside import Clock
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTokens:
    """Use case: return what is kept of each token that was issued, oldest first.

    With `expires_within`, only of those that let their callers in now, but not after that time.
    """

    storage: Storage
    clock: Clock

    def __call__(self, *, expires_within: timedelta | None = None) -> Sequence[AccessToken]:
        with self.storage.read() as unit:
            tokens = unit.access_tokens.all()
        if expires_within is None:
            return tokens
        now = self.clock.now()
        return [
            token
            for token in tokens
            if token.state(now) is TokenState.ACTIVE and token.expires_at - now <= expires_within
        ]
