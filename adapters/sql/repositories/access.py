"""Access tokens."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from adapters.sql.repositories.repository import ById
from adapters.sql.rows import Rows
from domain.access.token import AccessToken, AccessTokens

_ACCESS_TOKENS = Rows("access_tokens", AccessToken, key=("token_hash",))


class SqlAccessTokens(ById[str, AccessToken], AccessTokens):
    """Issued access tokens, by hash."""

    _rows = _ACCESS_TOKENS

    @override
    def all(self) -> Sequence[AccessToken]:
        order = f"ORDER BY issued_at, {self._dialect.order_of_creation}"
        return _ACCESS_TOKENS.find_readable(self._transaction, order, {})
