"""A guest's click on a button on cardonfile's own page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from domain.agreements.click import BrowserOfClick
from domain.sessions.session import CardSession


class Browser(NamedTuple):
    """The IP address and the User-Agent of a browser."""

    address: str
    user_agent: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClickOnPage:
    """The content of the page's form, and the browser that sent it.

    `agreed` is the digest of the text to which the guest agrees, or None if the page did not show a
    text. `keeps` is whether the box is ticked. `secret` is the secret in the browser's cookie, or
    None if the browser has no such cookie. `noted` is the browser to record as evidence, or None if
    the operator does not record browsers.
    """

    agreed: str | None
    keeps: bool
    secret: str | None
    noted: Browser | None

    def noted_in(self, session: CardSession, now: datetime) -> CardSession:
        """Return a copy of the session that records `noted` at the time `now`.

        Return the session unchanged if `noted` is None.
        """
        if self.noted is None:
            return session
        return session.clicked_in(BrowserOfClick(clicked_at=now, **self.noted._asdict()))
