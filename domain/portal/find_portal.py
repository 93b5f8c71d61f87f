"""Find a portal session by the secret of its link, or by the cookie of a browser."""

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
    """No portal session has this secret, or its guest was erased or merged into another guest."""


class PortalExpired(Exception):
    """The link has expired, or must no longer be used.

    A link must no longer be used if the access token that made it is revoked, or if another guest
    was merged into the guest of the link.
    """


class PortalEnded(Exception):
    """The browser has not begun a visit to the guest's own page, or the visit has ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Visited:
    """A portal session, its guest and center, and the guest's active cards there (`accounts`)."""

    session: PortalSession
    guest: Guest
    center: Center
    accounts: Sequence[Account]

    def account(self, account_id: str) -> Account | None:
        """Return the card with this id, or None if it is not among `accounts`."""
        return next((each for each in self.accounts if each.account_id == account_id), None)


def find_link(unit: UnitOfWork, secret: str, now: datetime) -> Visited:
    """Return the portal session whose link contains `secret`, with its guest and center.

    The cards are not read, so the result's `accounts` is empty. In a write unit, this call also
    locks the portal session. Raises PortalUnknown or PortalExpired.
    """
    session = unit.portal_sessions.with_secret(hash_of(secret))
    if session is None:
        raise PortalUnknown
    visited = _visited(unit, session, accounts=())
    if now >= session.expires_at:
        raise PortalExpired
    return visited


def find_visit(unit: UnitOfWork, cookie: str | None, now: datetime) -> Visited:
    """Return the portal session that a browser's cookie identifies, with the guest's cards.

    In a write unit, this call also locks these cards. Raises PortalEnded.
    """
    portal_id, _, secret = (cookie or "").partition(".")
    known_id = plain_uuid(portal_id)
    session = unit.portal_sessions.get(PortalId(known_id)) if known_id else None
    if session is None or not session.has_visit(secret, now):
        raise PortalEnded
    # The cards are read first to lock them, because a merge of the guest waits for these locks.
    accounts = unit.accounts.active_at(session.guest_id, session.center_id)
    try:
        return _visited(unit, session, accounts)
    except (PortalUnknown, PortalExpired):
        raise PortalEnded from None


def cookie_of(session: PortalSession, secret: str) -> str:
    """Return the value of the cookie for a browser. Each browser gets its own `secret`."""
    return f"{session.portal_id}.{secret}"


def _visited(unit: UnitOfWork, session: PortalSession, accounts: Sequence[Account]) -> Visited:
    guest, center = unit.guests.get(session.guest_id), unit.centers.get(session.center_id)
    if guest is None or center is None:
        raise PortalUnknown
    token = unit.access_tokens.get(session.access_token_hash)
    if token is not None and token.revoked_at is not None:
        # A thief of the token may also have the link.
        raise PortalExpired
    merged_at = unit.erasures.last_merge_into(guest.id)
    if merged_at is not None and session.created_at <= merged_at:
        # An earlier release may have merged the guests without ending the link.
        raise PortalExpired
    return Visited(session=session, guest=guest, center=center, accounts=accounts)
