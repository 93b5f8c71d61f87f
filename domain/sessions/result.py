"""The results of card-addition sessions, one word each, for operators."""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final, NamedTuple

OVERDUE_AFTER: Final = timedelta(minutes=1)
"""A session that has been due for longer than this is overdue: the workers cannot keep up."""


class SessionResult(StrEnum):
    """The result of a session.

    Completed sessions:

    - `STORED`: the card is new.
    - `RENEWED`: the guest typed in a card that was already on file.
    - `CARD_ON_FILE_USED`: the guest used a card on file without typing it in.

    Expired sessions:

    - `DECLINED`: the PSP refused a card.
    - `ABANDONED`: the guest left the page.
    - `NEVER_OPENED`: the link was not opened.

    Open sessions:

    - `WAITING_FOR_PSP`: the PSP does not respond.
    - `OVERDUE`: the worker is late.
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
    """How sessions are grouped when they are counted."""

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
