"""Find the portal session of a link, or of a browser that has entered the page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from domain.access.token import hash_of
from domain.cards.account import Account
from domain.centers.center import Center
from domain.guests.guest import Guest
from domain.identifiers import plain_uuid
from domain.portal.portal_session import PortalId, PortalSession
from domain.storage import UnitOfWork


class PortalUnknown(Exception):
    """No portal session has this secret, or its guest was erased."""


class PortalExpired(Exception):
    """The link is past its end, its access token is revoked, or its guest was merged with another."""


class PortalEnded(Exception):
    """The browser has not entered the page, or its visit has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited:
    """A portal session with its records. `accounts` are the guest's active cards at the center."""

    session: PortalSession
    guest: Guest
    center: Center
    accounts: Sequence[Account]

    def account(self, account_id: str) -> Account | None:
        """Return the guest's card with this id, or None."""
        return next((each for each in self.accounts if each.account_id == account_id), None)


def find_link(unit: UnitOfWork, secret: str, now: datetime) -> Visited:
    """Return the portal session whose link has this secret. Raises PortalUnknown or PortalExpired."""
    session = unit.portal_sessions.with_secret(hash_of(secret))
    if session is None:
        raise PortalUnknown
    visited = _visited(unit, session, accounts=())
    if now >= session.expires_at:
        raise PortalExpired
    return visited


def find_visit(unit: UnitOfWork, cookie: str | None, now: datetime) -> Visited:
    """Return the portal session of a browser by its cookie. A write unit locks the guest's cards.

    Raises PortalEnded.
    """
    portal_id, _, secret = (cookie or "").partition(".")
    known_id = plain_uuid(portal_id)
    session = unit.portal_sessions.get(PortalId(known_id)) if known_id else None
    if session is None or not session.has_visit(secret, now):
        raise PortalEnded
    # Read first, because a merge waits for the locks on the cards.
    accounts = unit.accounts.active_at(session.guest_id, session.center_id)
    try:
        return _visited(unit, session, accounts)
    except (PortalUnknown, PortalExpired):
        raise PortalEnded from None


def cookie_of(session: PortalSession, secret: str) -> str:
    """Return what the cookie of a browser contains, which has a secret of its own."""
    return f"{session.portal_id}.{secret}"


def _visited(unit: UnitOfWork, session: PortalSession, accounts: Sequence[Account]) -> Visited:
    guest, center = unit.guests.get(session.guest_id), unit.centers.get(session.center_id)
    if guest is None or center is None:
        raise PortalUnknown
    token = unit.access_tokens.get(session.access_token_hash)
    if token is not None and token.revoked_at is not None:
        # Whoever stole the token may have the link.
        raise PortalExpired
    merged_at = unit.erasures.last_merge_into(guest.id)
    if merged_at is not None and session.created_at <= merged_at:
        # An earlier release merged the guests, and did not end the link.
        raise PortalExpired
    return Visited(session=session, guest=guest, center=center, accounts=accounts)
