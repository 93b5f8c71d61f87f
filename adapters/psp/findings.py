"""What the checks of an installation find, for the operator."""

from __future__ import annotations

from datetime import datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from functools import partial
from typing import Final, NamedTuple

from domain.retries import CLOCKS_DIFFER_BY

CLOCK: Final = "clock"


class Diagnosis(StrEnum):
    """The meaning of a finding for the operator."""

    OK = "ok"
    PROBLEM = "problem"
    """Something that the operator must fix."""
    UNKNOWN = "unknown"
    """Something that cannot be checked from here. That is not a fault."""


class Finding(NamedTuple):
    """A finding about a subject, such as `keys`.

    `text` is one line, which must not contain a secret. If there is a problem, the text tells the
    operator what to do.
    """

    diagnosis: Diagnosis
    about: str
    text: str


ok, problem, unknown = (partial(Finding, diagnosis) for diagnosis in Diagnosis)


def compare_clocks(date: str | None, now: datetime, *, of: str) -> Finding:
    """Compare this machine's clock with that of a server, and return a finding.

    `date` is the `Date` header of the server's response, which arrived at `now`. `of` is the name
    of the server in the text of the finding.
    """
    try:
        ahead = round((now - parsedate_to_datetime(date or "")).total_seconds())
    except (TypeError, ValueError):
        return unknown(CLOCK, f"the response of {of} does not contain a time")
    if abs(ahead) <= CLOCKS_DIFFER_BY.total_seconds():
        return ok(CLOCK, f"within a minute of the clock of {of}")
    how = f"{abs(ahead)} seconds {'ahead of' if ahead > 0 else 'behind'}"
    return problem(CLOCK, f"{how} the clock of {of}: synchronize this machine's clock (NTP)")
