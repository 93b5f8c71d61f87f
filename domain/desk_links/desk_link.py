"""Links to the front desk's page. The secret of a link is shown once; only its hash is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, Protocol

from domain.identifiers import TokenId
from domain.permissions import Caller

MAX_LABEL_LENGTH: Final = 40
MAX_DESK_LINKS: Final = 20
"""The maximum number of desk links of a session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeskLink:
    """A link to the front desk's page of a session.

    `secret_hash` is the SHA-256 of the link's secret in hexadecimal. `access_token_hash` is the
    SHA-256 of the access token with which `caller` made the link. `label`, such as "Chair 3", helps
    the front desk to tell guests apart.
    """

    secret_hash: str
    token_id: TokenId
    label: str
    caller: Caller
    access_token_hash: str
    created_at: datetime


class DeskLinks(Protocol):
    """Repository of desk links."""

    def add(self, link: DeskLink) -> None:
        """Store a new desk link."""
        ...

    def get(self, secret_hash: str) -> DeskLink | None:
        """Return the desk link whose secret has this hash, or None."""
        ...

    def of(self, token_id: TokenId) -> Sequence[DeskLink]:
        """Return a session's desk links, oldest first. Lock the session before you add a link."""
        ...

    def remove(self, token_id: TokenId) -> None:
        """Delete all desk links of a session, if any."""
        ...
