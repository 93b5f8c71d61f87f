"""Access tokens: random text that is shown once, and kept only as a hash."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from hashlib import sha256
from typing import Final, Protocol

from domain.permissions import Caller

MARK: Final = "cof_"
"""Every token begins with it, so that people and secret scanners recognize one."""
PREFIX_LENGTH: Final = 12
"""How much of a token is kept in the clear; at least 128 random bits remain unknown."""

EXPIRES_SOON: Final = timedelta(days=14)
"""Operators are told of a token that expires in this time."""

_FORM = re.compile(rf"{MARK}[A-Za-z0-9_-]{{22,100}}")


class TokenState(StrEnum):
    """Whether a token lets its caller in, and why not. An UNKNOWN one was not issued here."""

    ACTIVE = "active"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """An issued access token.

    `token_hash` is the SHA-256 of the token in hexadecimal; `prefix` is its beginning, by which
    people name it. The token itself is shown once, when it is issued, and kept nowhere. `used_at` is
    the hour of its last use that was noted; an hour may be missing.
    """

    token_hash: str
    prefix: str
    caller: Caller
    issued_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None
    used_at: datetime | None = None

    @classmethod
    def issue(
        cls, caller: Caller, *, secret: str, now: datetime, lifetime: timedelta
    ) -> tuple[str, AccessToken]:
        """Return a new token, made of random text, and what is kept of it."""
        token = MARK + secret
        kept = cls(
            token_hash=hash_of(token),
            prefix=token[:PREFIX_LENGTH],
            caller=caller,
            issued_at=now,
            expires_at=now + lifetime,
        )
        return token, kept

    def may_begin_with(self, text: str) -> bool:
        """Return whether `text` agrees with the prefix. What follows the prefix is not known."""
        return self.prefix.startswith(text[: len(self.prefix)])

    def is_token(self, text: str) -> bool:
        """Return whether `text` is the whole token."""
        return self.token_hash == hash_of(text)

    def state(self, now: datetime) -> TokenState:
        """Return the state at this time."""
        if self.revoked_at is not None:
            return TokenState.REVOKED
        return TokenState.ACTIVE if now < self.expires_at else TokenState.EXPIRED

    def hour_to_note(self, now: datetime) -> datetime | None:
        """Return the hour of a use at this time, or None when that or a later one is noted."""
        hour = now.replace(minute=0, second=0, microsecond=0)
        return hour if self.used_at is None or self.used_at < hour else None


def prefix_of(text: str) -> str | None:
    """Return the prefix of what has the form of a token; None for anything else."""
    return text[:PREFIX_LENGTH] if _FORM.fullmatch(text) else None


def hash_of(token: str) -> str:
    """Return the hash under which a token is kept."""
    return sha256(token.encode(errors="surrogatepass")).hexdigest()


class AccessTokens(Protocol):
    """Issued access tokens, by hash."""

    def add(self, token: AccessToken) -> None:
        """Store an issued token."""
        ...

    def get(self, token_hash: str) -> AccessToken | None:
        """Return the token with this hash, valid or not, or None."""
        ...

    def all(self) -> Sequence[AccessToken]:
        """Return every token that can be decoded, oldest first."""
        ...

    def expiring(self, now: datetime, *, until: datetime) -> Sequence[AccessToken]:
        """Return the active tokens that expire by then and can be decoded, soonest first."""
        ...

    def revoke(self, token_hash: str, at: datetime) -> None:
        """Store that a token is revoked, unless it is already."""
        ...

    def note_use(self, token_hash: str, at: datetime) -> None:
        """Store when a token was used, unless a later time is stored."""
        ...


class Identity(Protocol):
    """Finds the caller behind an access token."""

    def authenticate(self, token: str) -> Caller | str:
        """Return the caller of a token; or why it lets nobody in, in words for the log.

        The words hold nothing of the token. Where uses of tokens are noted, that is at most once an
        hour; whether it succeeds, or takes long, shows nowhere. Raises ServiceUnavailable while it
        cannot be said whose token it is.
        """
        ...
