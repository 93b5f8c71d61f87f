"""Issue an access token."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from domain.access.token import AccessToken
from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.find_centers import existing_centers
from domain.errors import InvalidField
from domain.fields import parse_line
from domain.identifiers import CallerName
from domain.outside import Clock, Ids
from domain.permissions import Caller, Permission
from domain.storage import Storage, WriteUnit

MAX_CALLER_LENGTH: Final = 100
PROVIDED_CALLER_PREFIX: Final = "jwt:"
"""The prefix of the names of callers whose tokens come from an identity provider.

No other caller's name begins with it.
"""
MIN_LIFETIME: Final = timedelta(minutes=1)
MAX_LIFETIME: Final = timedelta(days=3650)


@dataclass(frozen=True, slots=True, kw_only=True)
class IssueToken:
    """Use case: issue an access token to a caller, and return it.

    The token cannot be read later, because only its hash is stored. Each call issues another token.
    `centers` contains the ids of the centers for which the caller may act; None means all centers.
    Raises InvalidField for an invalid caller, lifetime or center id. Raises CenterNotFound if there
    is no such center.
    """

    storage: Storage
    clock: Clock
    ids: Ids
    note_act: NoteAct

    def __call__(
        self,
        *,
        caller: str,
        permissions: Collection[Permission],
        centers: Collection[str] | None = None,
        lifetime: timedelta,
    ) -> str:
        name = CallerName(parse_line("caller", caller, max_length=MAX_CALLER_LENGTH))
        if name.startswith(PROVIDED_CALLER_PREFIX):
            raise InvalidField(
                "caller", f"a name that does not begin with {PROVIDED_CALLER_PREFIX}"
            )
        if not MIN_LIFETIME <= lifetime <= MAX_LIFETIME:
            raise InvalidField("lifetime", "from 1 minute to 3650 days")
        secret = self.ids.secret()
        now = self.clock.now()

        def issue(unit: WriteUnit) -> str:
            token, kept = AccessToken.issue(
                Caller(
                    name=name,
                    permissions=frozenset(permissions),
                    centers=None if centers is None else existing_centers(unit, centers),
                ),
                secret=secret,
                now=now,
                lifetime=lifetime,
            )
            unit.access_tokens.add(kept)
            self.note_act(
                unit,
                Action.TOKEN_ISSUED,
                kept.prefix,
                {"caller": name, "permissions": ",".join(sorted(permissions))},
            )
            unit.commit()
            return token

        return self.storage.transact(issue)
