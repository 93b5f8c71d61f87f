"""What became of a card-addition session, in a word for operators."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

from domain.sessions.session import SessionFacts, SessionStatus

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""How long after its time a session has not been processed because no worker keeps up."""


class Result(StrEnum):
    """What became of a session.

    `DECLINED`, `ABANDONED` and `NEVER_OPENED` ended without a card: after the PSP had refused one, on
    a page, or without a page. `OVERDUE` is open, and a worker should have processed it by now.
    """

    STORED = "stored"
    RENEWED = "renewed"
    REFUSED_BY_RULE = "refused_by_rule"
    DECLINED = "declined"
    ABANDONED = "abandoned"
    NEVER_OPENED = "never_opened"
    WAITING_FOR_PSP = "waiting_for_psp"
    OVERDUE = "overdue"
    OPEN = "open"


def result_of(facts: SessionFacts) -> Result:
    """Return what became of the sessions with these facts, so far."""
    match facts.status:
        case SessionStatus.COMPLETED:
            return Result.RENEWED if facts.is_renewal else Result.STORED
        case SessionStatus.FAILED:
            return Result.REFUSED_BY_RULE
        case SessionStatus.EXPIRED if facts.has_refused_card:
            return Result.DECLINED
        case SessionStatus.EXPIRED:
            return Result.ABANDONED if facts.is_opened else Result.NEVER_OPENED
        case SessionStatus.OPEN:
            if facts.is_unanswered:
                return Result.WAITING_FOR_PSP
            return Result.OVERDUE if facts.is_overdue else Result.OPEN
