"""The results of card-addition sessions, one word each, for operators."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""A session that is due for longer than this shows that the workers cannot keep up."""


class SessionResult(StrEnum):
    """The result of a session.

    `RENEWED`, `CARD_ON_FILE_USED` and `STORED` are completed sessions: the card that was typed was
    already on file, the guest used a card on file without typing it, or the card is new.
    `DECLINED`, `ABANDONED` and `NEVER_OPENED` are expired sessions: the PSP refused a card, the
    guest left the page, or the link was not opened. `WAITING_FOR_PSP` and `OVERDUE` are open
    sessions: the PSP does not respond, or a worker is late.
    """

    STORED = "stored"
    RENEWED = "renewed"
    CARD_ON_FILE_USED = "card_on_file_used"
    REFUSED_BY_RULE = "refused_by_rule"
    DECLINED = "declined"
    ABANDONED = "abandoned"
    NEVER_OPENED = "never_opened"
    WAITING_FOR_PSP = "waiting_for_psp"
    OVERDUE = "overdue"
    OPEN = "open"


class CountedBy(StrEnum):
    """The ways to group counted sessions."""

    CENTER = "center"
    MERCHANT = "merchant"


class CountedResult(NamedTuple):
    """How many sessions of a group had a result.

    `reason` is the type of the refusal, or its message if an earlier release stored no type.
    """

    group: str
    result: SessionResult
    reason: str | None
    sessions: int
