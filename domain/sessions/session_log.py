"""What operators read of the life of a session, step by step."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple, Protocol

from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession


class Step(StrEnum):
    """The steps. Each is also the event of its line in the log."""

    CREATED = "session_created"
    OPENED = "session_opened"
    PAGE_MADE = "page_made"
    COLLECTED = "card_collected"
    DECLINED = "card_declined"
    STORED = "card_stored"
    RENEWED = "card_renewed"
    REFUSED = "card_refused"
    DISCARD_SCHEDULED = "discard_scheduled"
    EXPIRED = "session_expired"


class SessionStep(NamedTuple):
    """A step that a session has taken, and the session after it.

    The reason is the type of the refusal of a card that was REFUSED, the PSP's code of one that was
    DECLINED, and why a session EXPIRED; None if there is none, or it is not known. `collected_at` is
    when, by the PSP's clock, a card that is STORED or RENEWED was collected.
    """

    step: Step
    session: CardSession
    reason: str | None = None
    collected_at: datetime | None = None


class SessionLog(Protocol):
    """Tells operators of steps. Use cases call it once the commit that made them has succeeded."""

    def __call__(self, *steps: SessionStep) -> None:
        """Log steps, in their order. Never raises."""
        ...


def steps_between(before: CardSession, after: CardSession) -> list[SessionStep]:
    """Return the steps from one stored state of a session to the next, except those of cards kept."""
    steps = []
    if after.opened_at is not None and before.opened_at is None:
        steps.append(SessionStep(Step.OPENED, after))
    if after.has_page and not (before.has_page and after.has_page_of(before)):
        steps.append(SessionStep(Step.PAGE_MADE, after))
    if after.status is not before.status and after.status in _ENDED:
        steps.append(SessionStep(_ENDED[after.status], after, after.reason_of_end))
    return steps


_ENDED: Final = {SessionStatus.FAILED: Step.REFUSED, SessionStatus.EXPIRED: Step.EXPIRED}
