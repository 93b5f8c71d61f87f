"""The entries of the audit trail. An entry never changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Final, NewType, Protocol, TypeAlias

from domain.identifiers import CallerName
from domain.pagination import ALL

Actor = NewType("Actor", str)
"""Who did something: `caller:` and an API caller's name, `user:` and an operator's name, or GUEST."""
GUEST: Final = Actor("guest")
"""The guest, on the guest's own page."""

Details: TypeAlias = Mapping[str, str | int]
"""Further details of an act. They contain neither secrets nor personal data."""


class Action(StrEnum):
    """The kinds of acts in the audit trail."""

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

    `about` identifies the object of the act in the form that commands accept, for example by an id,
    the prefix of a token or the name of a caller. If the object has no id, `about` is its kind, such as
    `backup`.
    """

    entry_id: str
    happened_at: datetime
    actor: Actor
    action: Action
    about: str
    details: Details | None = None


def actor_of(caller: CallerName) -> Actor:
    """Return the actor for an API caller."""
    return Actor(f"caller:{caller}")


class AuditTrail(Protocol):
    """Repository of audit entries. Old entries are deleted."""

    def add(self, entry: AuditEntry) -> None:
        """Store an entry."""
        ...

    def forget(self, *, before: datetime) -> int:
        """Delete entries older than `before`, a limited number per call.

        Return how many were deleted.
        """
        ...

    def latest(
        self,
        *,
        since: datetime | None = None,
        about: str | None = None,
        by: str | None = None,
        limit: int = ALL,
    ) -> Sequence[AuditEntry]:
        """Return at most `limit` entries, newest first.

        `since` limits the result to entries from that time on, `about` to one object, and `by` to
        one actor. `by` may be an actor, or only the name of a caller or user. Entries that cannot
        be decoded are left out.
        """
        ...
