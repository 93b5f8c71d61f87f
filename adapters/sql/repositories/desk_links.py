"""Links to the front desk's page."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from adapters.sql.repositories.repository import ById
from adapters.sql.rows import Rows
from domain.desk_links.desk_link import DeskLink, DeskLinks
from domain.identifiers import TokenId

_DESK_LINKS = Rows("desk_links", DeskLink, key=("secret_hash",))


class SqlDeskLinks(ById[str, DeskLink], DeskLinks):
    """Stores links to the front desk's page by the hash of their secret."""

    _rows = _DESK_LINKS

    @override
    def of(self, token_id: TokenId) -> Sequence[DeskLink]:
        return _DESK_LINKS.find(
            self._transaction,
            "WHERE token_id = :token_id ORDER BY created_at, secret_hash",
            {"token_id": token_id},
        )

    @override
    def remove(self, token_id: TokenId) -> None:
        self._transaction.execute(
            "DELETE FROM desk_links WHERE token_id = :token_id", {"token_id": token_id}
        )
