"""Revoke an access token."""

from __future__ import annotations

from dataclasses import dataclass, replace

from domain.access.token import MARK, PREFIX_LENGTH, AccessToken
from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.errors import InvalidField
from domain.outside import Clock
from domain.storage import Storage, WriteUnit


class TokenNotFound(LookupError):
    """No token has this prefix."""

    def __init__(self) -> None:
        super().__init__("no token begins with this text")


class TokenAmbiguous(LookupError):
    """Several tokens may have this prefix, so the prefix does not identify one token."""

    def __init__(self) -> None:
        super().__init__(
            f"several tokens begin with this text; give the first {PREFIX_LENGTH} characters, or the "
            "whole token"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RevokeToken:
    """Use case: revoke a token, and return its stored record.

    The next request with the token is refused. `prefix` is the whole token or its beginning. If
    it is only the beginning, the first 12 characters are compared. If the token is already revoked,
    nothing changes.

    Raises TokenNotFound or TokenAmbiguous. Raises InvalidField if `prefix` is so short that every
    token begins with it.
    """

    storage: Storage
    clock: Clock
    note_act: NoteAct

    def __call__(self, prefix: str) -> AccessToken:
        if MARK.startswith(prefix):
            raise InvalidField("prefix", f"longer than {MARK}, the beginning of every token")
        now = self.clock.now()

        def revoke(unit: WriteUnit) -> AccessToken:
            tokens = unit.access_tokens.all()
            named = [token for token in tokens if token.is_token(prefix)] or [
                token for token in tokens if token.may_begin_with(prefix)
            ]
            if not named:
                raise TokenNotFound
            if len(named) > 1:
                raise TokenAmbiguous
            token = named[0]
            if token.revoked_at is not None:
                return token
            unit.access_tokens.revoke(token.token_hash, now)
            self.note_act(unit, Action.TOKEN_REVOKED, token.prefix, {"caller": token.caller.name})
            unit.commit()
            return replace(token, revoked_at=now)

        return self.storage.transact(revoke)
