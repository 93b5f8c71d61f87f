"""Access tokens: random texts that are shown once. Only their hashes are stored."""

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
"""The text with which every token begins. People and secret scanners recognize a token by it."""
PREFIX_LENGTH: Final = 12
"""The length of a token's prefix, which is stored in clear text. The rest of the token has at least
128 random bits and is stored only as a hash.
"""

EXPIRES_SOON: Final = timedelta(days=14)
"""Operators are warned of a token that expires within this time."""

_FORM = re.compile(rf"{MARK}[A-Za-z0-9_-]{{22,100}}")


class TokenState(StrEnum):
    """The states of a token. Only an ACTIVE token is accepted.

    An UNKNOWN token was not issued by this installation.
    """

    ACTIVE = "active"
    UNKNOWN = "unknown"
    EXPIRED = "expired"
    REVOKED = "revoked"


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """An issued access token.

    `token_hash` is the SHA-256 of the token in hexadecimal. `prefix` is the beginning of the token,
    which people use to refer to the token. The token itself is shown once and not stored. `used_at`
    is the hour of the last recorded use. Some uses are not recorded.
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
        """Make a token from the random text `secret`, and return the token and its record."""
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
        """Return whether `text` may be the token or its beginning.

        Only the stored prefix is compared, because the token itself is not stored.
        """
        return self.prefix.startswith(text[: len(self.prefix)])

    def is_token(self, text: str) -> bool:
        """Return whether `text` is the whole token."""
        return self.token_hash == hash_of(text)

    def state(self, now: datetime) -> TokenState:
        """Return the token's state at the time `now`."""
        if self.revoked_at is not None:
            return TokenState.REVOKED
        return TokenState.ACTIVE if now < self.expires_at else TokenState.EXPIRED

    def hour_to_note(self, now: datetime) -> datetime | None:
        """Return the hour to store as `used_at` for a use at `now`.

        Return None if that hour or a later hour is already stored.
        """
        hour = now.replace(minute=0, second=0, microsecond=0)
        return hour if self.used_at is None or self.used_at < hour else None


def prefix_of(text: str) -> str | None:
    """Return the prefix of a text that has the form of a token, or None for any other text."""
    return text[:PREFIX_LENGTH] if _FORM.fullmatch(text) else None


def hash_of(token: str) -> str:
    """Return the hash under which a token is stored: its SHA-256 in hexadecimal."""
    return sha256(token.encode(errors="surrogatepass")).hexdigest()


class AccessTokens(Protocol):
    """Repository of issued access tokens, by hash."""

    def add(self, token: AccessToken) -> None:
        """Store an issued token."""
        ...

    def get(self, token_hash: str) -> AccessToken | None:
        """Return the token with this hash, or None. Expired and revoked tokens are returned too."""
        ...

    def all(self) -> Sequence[AccessToken]:
        """Return every token that can be decoded, oldest first."""
        ...

    def expiring(self, now: datetime, *, until: datetime) -> Sequence[AccessToken]:
        """Return the active tokens that expire by `until`, soonest first.

        Tokens that cannot be decoded are left out.
        """
        ...

    def revoke(self, token_hash: str, at: datetime) -> None:
        """Store that a token was revoked at the time `at`, unless it is already revoked."""
        ...

    def note_use(self, token_hash: str, at: datetime) -> None:
        """Store when a token was used, unless a later time is stored."""
        ...


class Identity(Protocol):
    """Finds the caller that owns an access token."""

    def authenticate(self, token: str) -> Caller | str:
        """Return the caller that owns a token, or a text with the reason to refuse the token.

        The text is written to the log, and does not contain any part of the token. A token's use is
        recorded in the background, at most once an hour; a failure to record it has no effect.
        Raises ServiceUnavailable while the caller cannot be determined.
        """
        ...
