"""Entries of the audit trail, which are added and never changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType, Protocol, TypeAlias

from domain.identifiers import CallerName
from domain.pagination import ALL

Actor = NewType("Actor", str)
"""The actor: `caller:` with the name of an API caller, `user:` with a user of the machine, or GUEST."""
GUEST: Final = Actor("guest")
"""The guest, on the guest's own page."""

Details: TypeAlias = Mapping[str, str | int]
"""Further details of an act, in words and numbers, without secrets or personal data."""


class Action(StrEnum):
    """What was done."""

    TOKEN_ISSUED = "token.issued"  # noqa: S105 - the name of an action
    TOKEN_REVOKED = "token.revoked"  # noqa: S105 - the name of an action
    PAYMENTS_CONFIGURED = "payments.configured"
    CENTER_SET = "center.set"
    CONSENT_SET = "consent.set"
    ENDPOINT_ADDED = "endpoint.added"
    ENDPOINT_UPDATED = "endpoint.updated"
    ENDPOINT_REMOVED = "endpoint.removed"
    SECRET_ROLLED = "endpoint.secret_rolled"  # noqa: S105 - the name of an action
    EVENT_REPLAYED = "event.replayed"
    EVENTS_REPLAYED = "events.replayed"
    CARD_REMOVED = "card.removed"
    AGREEMENT_ENDED = "agreement.ended"
    SESSIONS_CANCELLED = "sessions.cancelled"
    ACCOUNT_CLOSED = "account.closed"
    KEYS_CONFIRMED = "keys.confirmed"
    KEYS_TRUSTED = "keys.trusted"
    ACCOUNT_REOPENED = "account.reopened"
    IMPORT_BEGUN = "import.begun"
    INSTALLATION_MOVED = "installation.moved"
    INSTALLATION_COPIED = "installation.copied"
    BACKUP_COMPLETED = "backup.completed"
    GUEST_ERASED = "guest.erased"
    GUEST_MERGED = "guest.merged"
    GUEST_EXPORTED = "guest.exported"
    PORTAL_OPENED = "portal.opened"
    CONSENT_WITHDRAWN = "consent.withdrawn"
    EVIDENCE_SHOWN = "evidence.shown"
    PERSONAL_DATA_SHOWN = "personal_data.shown"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditEntry:
    """An act: who did what, when, and to what.

    `about` is the object of the act, as other commands name it: an id, the prefix of a token, the
    name of a caller. If the act makes or shows something, `about` names that, such as `backup`.
    """

    entry_id: str
    happened_at: datetime
    actor: Actor
    action: Action
    about: str
    details: Details | None = None


def actor_of(caller: CallerName) -> Actor:
    """Return an API caller as an actor."""
    return Actor(f"caller:{caller}")


class AuditTrail(Protocol):
    """The recorded acts. They do not change, and old entries are deleted."""

    def add(self, entry: AuditEntry) -> None:
        """Store an entry."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete a limited number of entries from before a time; return the number."""
        ...

    def latest(
        self,
        *,
        since: datetime | None = None,
        about: str | None = None,
        by: str | None = None,
        limit: int = ALL,
    ) -> Sequence[AuditEntry]:
        """Return the entries that can be decoded, newest first.

        The arguments limit them to entries since a time, about one object, or by an actor; `by` may
        also be the name of a caller or a user alone.
        """
        ...
