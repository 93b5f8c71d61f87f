"""The addresses for guests' browsers, all made from the public base URL."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from domain.centers.center_settings import Logo
from domain.errors import CardLimitReached
from domain.identifiers import CenterId, TokenId, find_uuid
from domain.sessions.session import CardSession
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedLinks:
    """Makes addresses under `base_url`, which comes from the settings, never from a request."""

    base_url: str

    def hosted_payment_uri(self, session: CardSession) -> str:
        """Return the address to which a client redirects the guest (interface, `openHostedPage`).

        Its `redirect_uri` is for clients to see; the token alone opens the same page.
        """
        redirect_uri = quote(session.redirect_uri, safe="")
        return (
            f"{self.base_url}/hosted-payments?token_id={session.token_id}"
            f"&redirect_uri={redirect_uri}"
        )

    def logo_uri(self, center_id: CenterId, logo: Logo | None) -> str | None:
        """Return the address of a center's logo, which changes with the picture; None for none."""
        if logo is None:
            return None
        return f"{self.base_url}/hosted-payments/logos/{center_id}/{logo.file_name}"

    def return_uri(self, token_id: TokenId) -> str:
        """Return the address to which the PSP redirects the guest after the page."""
        return f"{self.base_url}/hosted-payments/return?token_id={token_id}"

    def cancel_uri(self, token_id: TokenId) -> str:
        """Return the address of the page's link back without a card."""
        return f"{self.base_url}/hosted-payments/cancel?token_id={token_id}"


class LinkUnknown(Exception):
    """No session has this token, or its guest or center is gone."""


class LinkExpired(Exception):
    """The session is past its end, or has had its last page."""


class LinkCancelled(Exception):
    """The client has cancelled the session."""


class LinkPaused(Exception):
    """Too many cards were refused in 24 hours, so there is no further page for now."""

    def __init__(self, reached: CardLimitReached) -> None:
        self.reached = reached
        super().__init__()


class ClickNeeded(Exception):
    """Only the guest's click opens the link.

    It is older than 24 hours, or the guest must agree first, because the PSP's page shows no consent.
    """


def session_of_link(storage: Storage, token_id: str) -> CardSession:
    """Return the session with this token. Raises LinkUnknown when there is none.

    The token may have any text around it. Programs that find links in a text, and people who copy
    them, take the punctuation of every language for a part of the link.
    """
    known_id = find_uuid(token_id)
    with storage.read() as unit:
        session = unit.sessions.get(TokenId(known_id)) if known_id else None
    # A session of an erased guest leads nowhere.
    if session is None or not session.redirect_uri:
        raise LinkUnknown
    return session
