"""Access tokens."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from typing_extensions import override

from adapters.sql.repositories.repository import ById
from adapters.sql.rows import Rows
from domain.access.token import AccessToken, AccessTokens

_ACCESS_TOKENS = Rows("access_tokens", AccessToken, key=("token_hash",))


class SqlAccessTokens(ById[str, AccessToken], AccessTokens):
    """Stores access tokens by their hash."""

    _rows = _ACCESS_TOKENS

    @override
    def all(self) -> Sequence[AccessToken]:
        order = f"ORDER BY issued_at, {self._dialect.order_of_creation}"
        return _ACCESS_TOKENS.find_readable(self._transaction, order, {})

    @override
    def expiring(self, now: datetime, *, until: datetime) -> Sequence[AccessToken]:
        return _ACCESS_TOKENS.find_readable(
            self._transaction,
            "WHERE revoked_at IS NULL AND expires_at > :now AND expires_at <= :until "
            "ORDER BY expires_at, token_hash",
            {"now": now, "until": until},
        )

    @override
    def revoke(self, token_hash: str, at: datetime) -> None:
        self._transaction.execute(
            "UPDATE access_tokens SET revoked_at = :at "
            "WHERE token_hash = :token_hash AND revoked_at IS NULL",
            {"token_hash": token_hash, "at": at},
        )

    @override
    def note_use(self, token_hash: str, at: datetime) -> None:
        self._transaction.execute(
            "UPDATE access_tokens SET used_at = :at "
            "WHERE token_hash = :token_hash AND (used_at IS NULL OR used_at < :at)",
            {"token_hash": token_hash, "at": at},
        )
