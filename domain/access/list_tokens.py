"""List the access tokens that were issued."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.access.token import AccessToken
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListTokens:
    """Use case: return what is kept of each token that was issued, oldest first."""

    storage: Storage

    def __call__(self) -> Sequence[AccessToken]:
        with self.storage.read() as unit:
            return unit.access_tokens.all()
