"""The addresses for guests' browsers, all made from the public base URL."""

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
    """Makes addresses under `base_url`, which comes from the settings, never from a request."""

    base_url: str

    def hosted_payment_uri(self, session: CardSession) -> str:
        """Return the address to which a client redirects the guest (interface, `openHostedPage`).

        The address shows `token_id` and `redirect_uri` to clients; the key alone opens the page. A
        session of an earlier release has no key, and its token opens the page.
        """
        query = {"token_id": session.token_id, "key": session.link_key}
        sent = "&".join(f"{name}={value}" for name, value in query.items() if value)
        redirect_uri = quote(session.redirect_uri, safe="")
        return f"{self.base_url}/hosted-payments?{sent}&redirect_uri={redirect_uri}"

    def another_card_uri(self, session: CardSession) -> str:
        """Return the link to the page on which the guest agrees, without the card on file."""
        return f"{self.uri_of_key(session.link_key or '')}&another_card=yes"

    def short_uri(self, session: CardSession) -> str | None:
        """Return the short form of the link, or None for a session of an earlier release."""
        return session.link_key and f"{self.base_url}/h/{session.link_key}"

    def link_to_send(self, session: CardSession) -> str:
        """Return the short form of the link, or the link of a session without a short form."""
        return self.short_uri(session) or self.hosted_payment_uri(session)

    def desk_uri(self, secret: str) -> str:
        """Return the address of the front desk's page."""
        return f"{self.base_url}/hosted-payments/desk/{secret}"

    def portal_uri(self, secret: str) -> str:
        """Return the link to a guest's own page."""
        return f"{self.portal_page_uri}/{secret}"

    @property
    def portal_page_uri(self) -> str:
        """The address of the guest's own page, for a browser that has entered it."""
        return f"{self.base_url}/hosted-payments/portal"

    def uri_of_key(self, key: str) -> str:
        """Return the link that a short form stands for, without looking the key up."""
        return f"{self.base_url}/hosted-payments?key={quote(key, safe='')}"

    def logo_uri(self, center_id: CenterId, logo: Logo | None) -> str | None:
        """Return the address of a center's logo, or None if the center has no logo.

        Another picture has another address.
        """
        if logo is None:
            return None
        return f"{self.base_url}/hosted-payments/logos/{center_id}/{logo.file_name}"

    def return_uri(self, token_id: TokenId) -> str:
        """Return the address to which the PSP redirects the guest after the page."""
        return f"{self.base_url}/hosted-payments/return?token_id={token_id}"

    def cancel_uri(self, token_id: TokenId) -> str:
        """Return the address to which the PSP's page leads a guest who leaves without a card."""
        return f"{self.base_url}/hosted-payments/cancel?token_id={token_id}"


UPGRADES_TAKE: Final = timedelta(hours=1)
"""How long an earlier release may run beside this one."""


class LinkUnknown(Exception):
    """No session has this key or token, or the session's guest or center is gone."""


class LinkExpired(Exception):
    """The session is past its end, or has had its last page."""


class LinkCancelled(Exception):
    """The session was cancelled."""


class LinkPaused(Exception):
    """Too many cards were refused in 24 hours, so there is no further page for now."""

    def __init__(self, reached: CardLimitReached) -> None:
        self.reached = reached
        super().__init__()


class ClickNeeded(Exception):
    """Only a click by the guest opens the link.

    This has one of these reasons:

    - The link is older than 24 hours.
    - The guest must agree first, on cardonfile's page.
    - The page offers a card on file.
    - So many cards were refused at the center that programs may be testing cards.
    - The center did not accept the last card.
    """


class FormNeeded(Exception):
    """A form opens the PSP's page, not a redirect: the browser must send the form's fields."""

    def __init__(self, page: HostedPage) -> None:
        self.page = page
        super().__init__()


def session_of_link(storage: Storage, *, key: str | None, token_id: str = "") -> CardSession:
    """Return the session whose link has this key. Raises LinkUnknown if no session has it.

    Without a key, the token opens the link of a session that an earlier release started, or that
    was started while an earlier release ran beside this one. Key and token may have any text around
    them: people who copy links, and programs that find links in a text, often include punctuation.
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

    This can happen during an upgrade, if a client repeats add-card or reads the session through a
    process of the earlier release. If such a process ran at that time, it also started sessions.
    """
    with storage.read() as unit:
        return unit.sessions.is_any_without_key(
            since=session.created_at - UPGRADES_TAKE, before=session.created_at + UPGRADES_TAKE
        )


def session_of_return(storage: Storage, token_id: str) -> CardSession:
    """Return the session to which a PSP's page leads back.

    Raises LinkUnknown if there is no session.

    The PSP knows only the token. The token does not open a page; it only leads to the shop.
    """
    known_id = find_uuid(token_id)
    with storage.read() as unit:
        return _known(unit.sessions.get(TokenId(known_id)) if known_id else None)


def require_open(session: CardSession, now: datetime) -> None:
    """Raise LinkCancelled or LinkExpired if the link is over."""
    if session.is_past_end(now):
        raise LinkCancelled if session.cancelled_at else LinkExpired


def _known(session: CardSession | None) -> CardSession:
    # A session of an erased guest leads nowhere.
    if session is None or not session.redirect_uri:
        raise LinkUnknown
    return session
