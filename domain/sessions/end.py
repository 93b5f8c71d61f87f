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
"""The refusals that existed before refusals had types. This list does not grow."""


class SessionStatus(StrEnum):
    """The states of a card-addition session."""

    OPEN = "open"
    COMPLETED = "completed"
    FAILED = "failed"
    EXPIRED = "expired"


class NotAccepted(StrEnum):
    """Why the center did not accept the card of a page. The guest may try another card."""

    FUNDING = "funding_not_accepted"
    AUTHENTICATION = "not_authenticated"


class Ending(StrEnum):
    """The causes of the end of a session."""

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
"""The possible transitions, by state and cause. In any other case, the state does not change."""

_SETTLED: Final = frozenset(SessionStatus) - {status for status, _ in NEXT_STATUS}


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The code, message and type of the refusal for which a session failed.

    Sessions that failed before types were stored have no type. Their type is derived from the
    code and the message. Raises ValueError if the type is missing, and none of the refusals that
    existed before types has this code and message.
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
    """The part of a session that describes how it will end, or has ended.

    `expires_at` is the end of the link, or the end of the page if that is later. If the session
    failed because the card is already on file, `existing_account_id` is the account with the card.

    `cancelled_at` is set if the session was cancelled. `cancelled_by` is set too if a client or an
    operator cancelled the session. It is None if an earlier release cancelled the session, or if
    the session was cancelled by an erasure or because its merchant account is closed.

    `not_accepted` is why the center did not accept the card of the latest page. It is None again
    when another page is created.
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
        """Whether the session is final, because its card was stored or refused."""
        return self.status in _SETTLED

    @property
    def is_over(self) -> bool:
        """Whether the session has ended. An expired session may still store a late card."""
        return self.status is not SessionStatus.OPEN

    @property
    def reason_of_end(self) -> str | None:
        """The reason why the session ended without a card, or None.

        The reason is the type of the refusal, `cancelled` or `not_finished`.
        """
        if self.failure is not None:
            return self.failure.type
        if self.status is SessionStatus.EXPIRED:
            return "cancelled" if self.cancelled_at else "not_finished"
        return None

    def is_past_end(self, now: datetime) -> bool:
        """Return whether it is too late to open the link or to use the page."""
        is_over = self.status is SessionStatus.EXPIRED or self.cancelled_at is not None
        return is_over or now >= self.expires_at

    def has_link(self, now: datetime) -> bool:
        """Return whether the link may still lead to a page."""
        return not self.is_settled and not self.is_past_end(now)

    def completed(self, account_id: AccountId, now: datetime) -> Self:
        """Return the new state of this session after its card was stored as this account."""
        stored = replace(self, account_id=account_id, not_accepted=None)
        return self._ended(Ending.CARD_STORED, now, stored)

    def failed(self, refusal: Refusal, now: datetime, *, existing: AccountId | None = None) -> Self:
        """Return the new state of this session after a rule refused its card.

        If the card is already on file, `existing` is the account with the card.
        """
        failure = Failure(code=refusal.code, message=refusal.message, type=refusal.type)
        failed = replace(self, failure=failure, existing_account_id=existing)
        return self._ended(Ending.CARD_REFUSED, now, failed)

    def expired(self, now: datetime) -> Self:
        """Return the new state of this session after it ended without a card.

        Usually, the session has expired. But if the center did not accept the card of the latest
        page, and the session was not cancelled, the session has failed for that reason.
        """
        if self.not_accepted is not None and self.cancelled_at is None:
            return self.failed(PaymentMethodNotAccepted(), now)
        return self._ended(Ending.NO_CARD, now, self)

    def _ended(self, ending: Ending, now: datetime, ended: Self) -> Self:
        """Return the new state of this session after it ended for the cause `ending`.

        `ended` is a copy of this session with the other changes. If NEXT_STATUS does not contain
        the transition, nothing changes, except that the PSP is no longer polled.
        """
        status = NEXT_STATUS.get((self.status, ending))
        after = replace(ended, status=status, ended_at=now) if status else self
        return after.postponed(None)
