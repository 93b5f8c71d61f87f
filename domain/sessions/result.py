"""What became of card-addition sessions, in a word for operators."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""How long after its time a session has not been processed because no worker keeps up."""


class SessionResult(StrEnum):
    """What became of a session.

    A completed one has `RENEWED` a card that was on file before, or `STORED` one. `DECLINED`,
    `ABANDONED` and `NEVER_OPENED` expired: after the PSP had refused a card, on a page, or without
    one. Open ones are `WAITING_FOR_PSP` if it does not respond, and `OVERDUE` if a worker should have
    processed them by now.
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


class CountedBy(StrEnum):
    """What sessions are counted by."""

    CENTER = "center"
    MERCHANT = "merchant"


class CountedResult(NamedTuple):
    """How many sessions of a group have a result.

    `reason` is the type of the rule's refusal, or its message where an earlier release stored no
    type.
    """

    group: str
    result: SessionResult
    reason: str | None
    sessions: int
