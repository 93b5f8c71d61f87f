"""The addresses for guests' browsers, all under the public base URL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from urllib.parse import quote

from domain.centers.center_settings import Logo
from domain.errors import CardLimitReached
from domain.identifiers import CenterId, TokenId, find_link_key, find_uuid
from domain.psps.hosted_page import HostedPage
from domain.sessions.session import CardSession
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedLinks:
    """Makes addresses under `base_url`, which comes from the settings and never from a request."""

    base_url: str

    def hosted_payment_uri(self, session: CardSession) -> str:
        """Return the address to which a client redirects the guest to open the page.

        The address contains `token_id` and `redirect_uri` for clients, but only the key is needed
        to open the page. Sessions from an earlier release have no key; their token opens the page.
        """
        return f"{self._opening_uri(session)}&redirect_uri={quote(session.redirect_uri, safe='')}"

    def another_card_uri(self, session: CardSession) -> str:
        """Return the link that opens cardonfile's page without offering the card on file."""
        return f"{self.uri_of_key(session.link_key or '')}&another_card=yes"

    def short_uri(self, session: CardSession) -> str | None:
        """Return the short form of the link, or None for a session from an earlier release."""
        return session.link_key and f"{self.base_url}/h/{session.link_key}"

    def link_to_send(self, session: CardSession) -> str:
        """Return the short form of the link, which fits into a QR code and a text message.

        A session from an earlier release has no short form. Return its link without the
        redirect_uri, because its token alone opens the page.
        """
        return self.short_uri(session) or self._opening_uri(session)

    def desk_uri(self, secret: str) -> str:
        """Return the address of the front desk's page."""
        return f"{self.base_url}/hosted-payments/desk/{secret}"

    def portal_uri(self, secret: str) -> str:
        """Return the link to a guest's own page."""
        return f"{self.portal_page_uri}/{secret}"

    @property
    def portal_page_uri(self) -> str:
        """The address of the guest's own page. It works only in a browser with the page's cookie."""
        return f"{self.base_url}/hosted-payments/portal"

    def uri_of_key(self, key: str) -> str:
        """Return the link that contains `key`. Does not check whether a session has this key."""
        return f"{self.base_url}/hosted-payments?key={quote(key, safe='')}"

    def logo_uri(self, center_id: CenterId, logo: Logo | None) -> str | None:
        """Return the address of a center's logo, or None if the center has no logo.

        Each logo has a different address, so that browsers do not show a former logo.
        """
        if logo is None:
            return None
        return f"{self.base_url}/hosted-payments/logos/{center_id}/{logo.file_name}"

    def _opening_uri(self, session: CardSession) -> str:
        """Return the link with the session's token, and with the key if the session has one."""
        query = {"token_id": session.token_id, "key": session.link_key}
        sent = "&".join(f"{name}={value}" for name, value in query.items() if value)
        return f"{self.base_url}/hosted-payments?{sent}"

    def return_uri(self, token_id: TokenId) -> str:
        """Return the address to which the PSP redirects a guest who has finished its page."""
        return f"{self.base_url}/hosted-payments/return?token_id={token_id}"

    def cancel_uri(self, token_id: TokenId) -> str:
        """Return the address to which the PSP's page leads a guest who leaves without a card."""
        return f"{self.base_url}/hosted-payments/cancel?token_id={token_id}"


MAX_UPGRADE_DURATION: Final = timedelta(hours=1)
"""How long an earlier release may run beside this one."""


class LinkUnknown(Exception):
    """No session has this key or token, or the session's guest or center is no longer stored."""


class LinkExpired(Exception):
    """The session has expired, or has had the maximum number of pages."""


class LinkCancelled(Exception):
    """The session was cancelled."""


class LinkPaused(Exception):
    """A limit on refused cards is reached, so the link does not lead to a page for now."""

    def __init__(self, reached: CardLimitReached) -> None:
        self.reached = reached
        super().__init__()


class ClickNeeded(Exception):
    """The guest must click a button to open the link, for one of these reasons:

    - The link is older than 24 hours.
    - The guest has not yet agreed to the text on cardonfile's page.
    - Cardonfile's page offers a card on file.
    - Many cards were refused at the center, so programs may be testing cards.
    - The center did not accept the card that the guest typed in last.
    """


class FormNeeded(Exception):
    """A redirect cannot open the PSP's page.

    The browser must send a form with the page's fields.
    """

    def __init__(self, page: HostedPage) -> None:
        self.page = page
        super().__init__()


def session_of_link(storage: Storage, *, key: str | None, token_id: str = "") -> CardSession:
    """Return the session whose link has this key. Raises LinkUnknown if there is no such session.

    Without a key, `token_id` identifies the session. This works only for sessions that were started
    while an earlier release was running. Any text may surround the key and the token, because
    people who copy links, and programs that recognize links in texts, often include punctuation.
    """
    if not key:
        session = session_of_return(storage, token_id)
        if session.link_key is not None and not _had_link_without_key(storage, session):
            raise LinkUnknown
        return session
    found = find_link_key(key)
    with storage.read() as unit:
        return _known(unit.sessions.with_link_key(found) if found else None)


def _had_link_without_key(storage: Storage, session: CardSession) -> bool:
    """Return whether an earlier release may have returned the session's link without its key.

    This can happen during an upgrade, if a process of the earlier release handles a repeated
    add-card or a request for the session. Return True if such a process has started any session
    within MAX_UPGRADE_DURATION before or after this session was started.
    """
    with storage.read() as unit:
        return unit.sessions.is_any_without_key(
            since=session.created_at - MAX_UPGRADE_DURATION,
            before=session.created_at + MAX_UPGRADE_DURATION,
        )


def session_of_return(storage: Storage, token_id: str) -> CardSession:
    """Return the session with this token, for a browser that returns from a PSP's page.

    The token is part of the address to which the browser returns. The address only redirects the
    browser; it does not open a page. Raises LinkUnknown.
    """
    known_id = find_uuid(token_id)
    with storage.read() as unit:
        return _known(unit.sessions.get(TokenId(known_id)) if known_id else None)


def require_open(session: CardSession, now: datetime) -> None:
    """Raise LinkCancelled or LinkExpired if the link no longer works."""
    if session.is_past_end(now):
        raise LinkCancelled if session.cancelled_at else LinkExpired


def _known(session: CardSession | None) -> CardSession:
    # The session of an erased guest has no address.
    if session is None or not session.redirect_uri:
        raise LinkUnknown
    return session
