"""Find the session of a desk link, and the caller who made the link."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from domain.access.issue_token import PROVIDED_CALLER_PREFIX
from domain.access.token import TokenState, hash_of
from domain.desk_links.desk_link import DeskLink
from domain.permissions import Caller
from domain.sessions.find_session import may_have_link
from domain.sessions.session import CardSession
from domain.storage import UnitOfWork

PROVIDED_TOKEN_LIFETIME: Final = timedelta(hours=1)
"""How long a desk link works if it was made with a token of an identity provider.

Such a token cannot be revoked here.
"""


class DeskLinkUnknown(Exception):
    """No desk link has this secret, or its session is no longer stored."""


class DeskLinkStopped(Exception):
    """The desk link has ended, because the token that made it was revoked or has expired.

    If an identity provider issued this token, the link ends after PROVIDED_TOKEN_LIFETIME.
    """


def find_desk(unit: UnitOfWork, secret: str, now: datetime) -> tuple[DeskLink, Caller, CardSession]:
    """Return the desk link that has the secret, with its caller and its session.

    The caller is the one who made the link. The link acts on behalf of this caller.

    Raises DeskLinkUnknown or DeskLinkStopped.
    """
    link = unit.desk_links.get(hash_of(secret))
    session = unit.sessions.get(link.token_id) if link else None
    if link is None or session is None:
        raise DeskLinkUnknown
    caller = _caller_of(unit, link, now)
    if caller is None or not may_have_link(caller, session):
        raise DeskLinkStopped
    return link, caller, session


def _caller_of(unit: UnitOfWork, link: DeskLink, now: datetime) -> Caller | None:
    token = unit.access_tokens.get(link.access_token_hash)
    if token is not None:
        return token.caller if token.state(now) is TokenState.ACTIVE else None
    is_provided = link.caller.name.startswith(PROVIDED_CALLER_PREFIX)
    lasts = now < link.created_at + PROVIDED_TOKEN_LIFETIME
    return link.caller if is_provided and lasts else None
