"""How a card-addition session ends: its states, and the transitions between them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from typing import Final, Self

from domain.audit.entry import Actor
from domain.errors import (
    GuestNotFound,
    IncorrectBillingAddress,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    PaymentMethodAlreadyExists,
    PaymentMethodNotAccepted,
    Refusal,
)
from domain.identifiers import AccountId
from domain.retries import WorkAtPsp

_REFUSALS_WITHOUT_TYPE: Final = (
    GuestNotFound,
    InvalidCenterId,
    PaymentConfigurationNotDone,
    IncorrectBillingAddress,
    PaymentMethodAlreadyExists,
)
"""The refusals from before refusals had types. This list does not grow."""


class SessionStatus(StrEnum):
    """The states of a card-addition session."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"


class NotAccepted(StrEnum):
    """Why the center did not accept the card of a page. The guest may use another card."""

    FUNDING = "funding_not_accepted"
    AUTHENTICATION = "not_authenticated"


class Ending(StrEnum):
    """What ends a session."""

    CARD_STORED = "card stored"
    CARD_REFUSED = "card refused by our rules"
    NO_CARD = "no card by the end, or cancelled"


NEXT_STATUS: Final[Mapping[tuple[SessionStatus, Ending], SessionStatus]] = {
    (SessionStatus.OPEN, Ending.CARD_STORED): SessionStatus.COMPLETED,
    (SessionStatus.OPEN, Ending.CARD_REFUSED): SessionStatus.FAILED,
    (SessionStatus.OPEN, Ending.NO_CARD): SessionStatus.EXPIRED,
    # The PSP may report a card late.
    (SessionStatus.EXPIRED, Ending.CARD_STORED): SessionStatus.COMPLETED,
}
"""The possible transitions, and what causes each. Any other event leaves the state unchanged."""

_SETTLED: Final = frozenset(SessionStatus) - {status for status, _ in NEXT_STATUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a session failed: the code, message and type of the refusal.

    The row of a session that failed before types were stored has no type. The type is then found by
    code and message. Raises ValueError if no session can have failed with these values.
    """

    code: int
    message: str
    type: str = ""

    def __post_init__(self) -> None:
        if self.type:
            return
        for refusal in _REFUSALS_WITHOUT_TYPE:
            if (refusal.code, refusal.message) == (self.code, self.message):
                object.__setattr__(self, "type", refusal.type)
                return
        raise ValueError(f"no session fails with the refusal {self.code} {self.message!r}")


@dataclass(frozen=True, kw_only=True)
class EndingSession(WorkAtPsp):
    """How a session ends, or ended.

    `expires_at` is the end of the link, or the end of its page if that is later.
    `existing_account_id` is the account that already holds the card, if the session failed for that
    reason. `cancelled_at` is set once the session is cancelled. `cancelled_by` is then set too,
    unless an erasure or an earlier release cancelled the session. `not_accepted` is why the center
    did not accept the card of the latest page; None once another page begins.
    """

    expires_at: datetime
    status: SessionStatus = SessionStatus.OPEN
    account_id: AccountId | None = None
    existing_account_id: AccountId | None = None
    failure: Failure | None = None
    ended_at: datetime | None = None
    cancelled_at: datetime | None = None
    cancelled_by: Actor | None = None
    not_accepted: NotAccepted | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the session is final: its card is stored or refused."""
        return self.status in _SETTLED

    @property
    def is_over(self) -> bool:
        """Whether the session has ended, and the PSP is no longer asked about it."""
        return self.status is not SessionStatus.OPEN

    @property
    def reason_of_end(self) -> str | None:
        """Why the session ended without a card: the refusal's type, `cancelled` or `not_finished`."""
        if self.failure is not None:
            return self.failure.type
        if self.status is SessionStatus.EXPIRED:
            return "cancelled" if self.cancelled_at else "not_finished"
        return None

    def is_past_end(self, now: datetime) -> bool:
        """Return whether it is too late to open the link, or to use the page."""
        is_over = self.status is SessionStatus.EXPIRED or self.cancelled_at is not None
        return is_over or now >= self.expires_at

    def has_link(self, now: datetime) -> bool:
        """Return whether the link may still lead to a page."""
        return not self.is_settled and not self.is_past_end(now)

    def completed(self, account_id: AccountId, now: datetime) -> Self:
        """End the session with its card stored."""
        stored = replace(self, account_id=account_id, not_accepted=None)
        return self._ended(Ending.CARD_STORED, now, stored)

    def failed(self, refusal: Refusal, now: datetime, *, existing: AccountId | None = None) -> Self:
        """End the session because a rule refuses the card.

        `existing` is the account that already holds it.
        """
        failure = Failure(code=refusal.code, message=refusal.message, type=refusal.type)
        failed = replace(self, failure=failure, existing_account_id=existing)
        return self._ended(Ending.CARD_REFUSED, now, failed)

    def expired(self, now: datetime) -> Self:
        """End the session without a card.

        If the center did not accept the card of the latest page, the session fails for that reason.
        """
        if self.not_accepted is not None and self.cancelled_at is None:
            return self.failed(PaymentMethodNotAccepted(), now)
        return self._ended(Ending.NO_CARD, now, self)

    def _ended(self, ending: Ending, now: datetime, ended: Self) -> Self:
        """Move to the next state with the values of `ended`, if allowed.

        Stop polling in either case.
        """
        status = NEXT_STATUS.get((self.status, ending))
        after = replace(ended, status=status, ended_at=now) if status else self
        return after.postponed(None)
