"""Revoke an access token."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.access_tokens import MARK, AccessToken
from domain.errors import InvalidField
from domain.ports import Clock, Storage, WriteUnit


class TokenNotFound(LookupError):
    """No token begins with the prefix."""

    def __init__(self) -> None:
        super().__init__("no token begins like this")


class TokenAmbiguous(LookupError):
    """Several tokens begin with the prefix."""

    def __init__(self) -> None:
        super().__init__("several tokens begin like this; give more of it")


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeToken:
    """Use case: refuse a token from the next request on, and return what is kept of it.

    `prefix` is the beginning of the token or the whole token. A token that was revoked before
    keeps its time. Raises InvalidField when every token begins like this, else TokenNotFound or
    TokenAmbiguous.
    """

    storage: Storage
    clock: Clock

    def __call__(self, prefix: str) -> AccessToken:
        """Find the token and mark it as revoked."""
        if MARK.startswith(prefix):
            raise InvalidField("prefix", f"longer than {MARK}, with which every token begins")
        now = self.clock.now()

        def revoke(unit: WriteUnit) -> AccessToken:
            named = [token for token in unit.access_tokens.all() if token.is_named_by(prefix)]
            if not named:
                raise TokenNotFound
            if len(named) > 1:
                raise TokenAmbiguous
            revoked = replace(named[0], revoked_at=named[0].revoked_at or now)
            unit.access_tokens.update(revoked)
            unit.commit()
            return revoked

        return self.storage.transact(revoke)
