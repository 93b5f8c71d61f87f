"""What became of a card-addition session, in a word for operators."""

from __future__ import annotations

from enum import StrEnum

from domain.sessions.session import SessionFacts, SessionStatus


class Result(StrEnum):
    """What became of a session.

    `DECLINED`, `ABANDONED` and `NEVER_OPENED` ended without a card: after the PSP had refused one, on
    a page, or without a page.
    """

    STORED = "stored"
    RENEWED = "renewed"
    REFUSED_BY_RULE = "refused_by_rule"
    DECLINED = "declined"
    ABANDONED = "abandoned"
    NEVER_OPENED = "never_opened"
    WAITING_FOR_PSP = "waiting_for_psp"
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
            return Result.WAITING_FOR_PSP if facts.is_unanswered else Result.OPEN
