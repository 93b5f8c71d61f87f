"""Links to the front desk's page: a secret that is shown once, and stored only as a hash."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from domain.identifiers import TokenId
from domain.permissions import Caller

MAX_LABEL_LENGTH: Final = 40
MAX_DESK_LINKS: Final = 20
"""How many desk links a session may have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskLink:
    """A link to the front desk's page of a session.

    `secret_hash` and `access_token_hash` are SHA-256 in hexadecimal: of the link's secret, and of
    the access token with which `caller` made the link. `label` tells guests apart, such as
    "Chair 3".
    """

    secret_hash: str
    token_id: TokenId
    label: str
    caller: Caller
    access_token_hash: str
    created_at: datetime


class DeskLinks(Protocol):
    """The links to the front desk's page."""

    def add(self, link: DeskLink) -> None:
        """Store a new desk link."""
        ...

    def get(self, secret_hash: str) -> DeskLink | None:
        """Return the desk link whose secret has this hash, or None."""
        ...

    def of(self, token_id: TokenId) -> Sequence[DeskLink]:
        """Return a session's desk links, oldest first. To add a link, lock the session."""
        ...

    def remove(self, token_id: TokenId) -> None:
        """Delete a session's desk links."""
        ...
