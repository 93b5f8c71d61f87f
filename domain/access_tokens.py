"""Access tokens as they are kept: by hash, never as they were issued."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from domain.permissions import Caller


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessToken:
    """An issued access token.

    `token_hash` is the SHA-256 of the token in hexadecimal; `prefix` is its beginning, by which
    people name it. The token itself is shown once, when it is issued, and kept nowhere.
    """

    token_hash: str
    prefix: str
    caller: Caller
    issued_at: datetime
    expires_at: datetime
    revoked_at: datetime | None = None

    def is_valid(self, now: datetime) -> bool:
        """Tell whether the token still lets its caller in."""
        return self.revoked_at is None and now < self.expires_at
