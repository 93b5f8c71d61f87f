"""A guest's click on a button of cardonfile's page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from domain.agreements.click import BrowserOfClick
from domain.sessions.session import CardSession


class Browser(NamedTuple):
    """The browser's IP address, and its User-Agent."""

    address: str
    user_agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickOnPage:
    """What the form of the page contains, and the browser that sent it.

    `agreed` is the digest of the text to which the guest agrees; None if the page showed no text.
    `keeps` says whether the box is ticked. `secret` is the browser's secret; None if the browser
    has no secret. `noted` is the browser to record as evidence; None unless the operator records
    browsers.
    """

    agreed: str | None
    keeps: bool
    secret: str | None
    noted: Browser | None

    def noted_in(self, session: CardSession, now: datetime) -> CardSession:
        """Return the session with `noted` recorded, or unchanged if `noted` is None."""
        if self.noted is None:
            return session
        return session.clicked_in(BrowserOfClick(clicked_at=now, **self.noted._asdict()))
