"""Opaque access tokens: random text that is issued here, and kept only as a hash."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from typing_extensions import override

from domain.access_tokens import AccessToken
from domain.permissions import Caller
from domain.ports import Clock, Identity, Ids, Storage, WriteUnit

MARK: Final = "cof_"
"""What every token begins with, so that secret scanners and people recognise one."""
PREFIX_LENGTH: Final = 12
"""How much of a token is kept in the clear; at least 128 random bits remain unknown."""


class TokenNotFound(Exception):
    """No token begins like this."""


class TokenAmbiguous(Exception):
    """Several tokens begin like this."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueTokens(Identity):
    """Issues, knows and revokes opaque tokens."""

    storage: Storage
    clock: Clock
    ids: Ids

    @override
    def authenticate(self, token: str) -> Caller | None:
        # The hash is looked up, so how long it takes tells nothing of the tokens that exist.
        with self.storage.read() as unit:
            known = unit.access_tokens.get(_hash(token))
        return known.caller if known and known.is_valid(self.clock.now()) else None

    def issue(self, caller: Caller, *, ttl: timedelta) -> str:
        """Issue a token to a caller; gives the token, which cannot be shown again."""
        now = self.clock.now()
        token = MARK + self.ids.secret()
        record = AccessToken(
            token_hash=_hash(token),
            prefix=token[:PREFIX_LENGTH],
            caller=caller,
            issued_at=now,
            expires_at=now + ttl,
        )

        def store(unit: WriteUnit) -> None:
            unit.access_tokens.add(record)
            unit.commit()

        self.storage.transact(store)
        return token

    def all(self) -> Sequence[AccessToken]:
        """Give every token that was issued, oldest first."""
        with self.storage.read() as unit:
            return unit.access_tokens.all()

    def revoke(self, beginning: str) -> AccessToken:
        """Revoke the token that begins like this, from the next request on; twice is fine.

        Raises TokenNotFound or TokenAmbiguous.
        """

        def mark(unit: WriteUnit) -> AccessToken:
            named = [
                token
                for token in unit.access_tokens.all()
                if token.prefix.startswith(beginning) or token.token_hash == _hash(beginning)
            ]
            if not named:
                raise TokenNotFound
            if len(named) > 1:
                raise TokenAmbiguous
            revoked = replace(named[0], revoked_at=named[0].revoked_at or self.clock.now())
            unit.access_tokens.update(revoked)
            unit.commit()
            return revoked

        return self.storage.transact(mark)


def _hash(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()
