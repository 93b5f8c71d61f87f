"""The steps of a session, which are logged for operators."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession


class Step(StrEnum):
    """The steps of a session. The value of each is also the name of its log event."""

    CREATED = "session_created"
    OPENED = "session_opened"
    PAGE_MADE = "page_made"
    COLLECTED = "card_collected"
    DECLINED = "card_declined"
    STORED = "card_stored"
    RENEWED = "card_renewed"
    CARD_USED = "card_on_file_used"
    NOT_ACCEPTED = "card_not_accepted"
    REFUSED = "card_refused"
    DISCARD_SCHEDULED = "discard_scheduled"
    EXPIRED = "session_expired"


class SessionStep(NamedTuple):
    """A step, and the session after the step.

    Only the following steps have a `reason`:

    - DECLINED: the PSP's code, or None if the PSP did not report a code.
    - NOT_ACCEPTED: why the center did not accept the card. The session stays open for another card.
    - REFUSED: the type of the refusal. The session has ended.
    - EXPIRED: why the session expired.

    For STORED and RENEWED, `collected_at` is when the card was collected, by the PSP's clock.
    """

    step: Step
    session: CardSession
    reason: str | None = None
    collected_at: datetime | None = None


class SessionLog(Protocol):
    """Logs steps for operators. Use cases call it after the commit that stored the steps."""

    def __call__(self, *steps: SessionStep) -> None:
        """Log steps in the given order. Never raises."""
        ...


def steps_between(before: CardSession, after: CardSession) -> list[SessionStep]:
    """Return the steps that lead from one stored state of a session to another.

    Steps about stored cards are left out.
    """
    steps = []
    if after.opened_at is not None and before.opened_at is None:
        steps.append(SessionStep(Step.OPENED, after))
    if after.has_page and not (before.has_page and after.has_page_of(before)):
        steps.append(SessionStep(Step.PAGE_MADE, after))
    if after.not_accepted is not None and after.not_accepted is not before.not_accepted:
        steps.append(SessionStep(Step.NOT_ACCEPTED, after, after.not_accepted.value))
    if after.status is not before.status and after.status in _ENDED:
        steps.append(SessionStep(_ENDED[after.status], after, after.reason_of_end))
    return steps


_ENDED: Final = {SessionStatus.FAILED: Step.REFUSED, SessionStatus.EXPIRED: Step.EXPIRED}
