"""Make a link to a guest's own page."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from math import ceil
from typing import Final, NamedTuple

from domain.access.token import hash_of
from domain.audit.entry import Action
from domain.audit.note_act import NoteAct
from domain.centers.center import parse_center_id
from domain.centers.payment_configuration import DEFAULT_PORTAL_MINUTES
from domain.errors import (
    GuestNotFound,
    InvalidCenterId,
    InvalidField,
    PortalLimitReached,
    RedirectUriInvalid,
    RedirectUriRequired,
)
from domain.guests.guest import parse_guest_id
from domain.languages import parse_locale
from domain.outside import Clock, Ids
from domain.permissions import MAY_OPEN_PORTALS, MAY_VIEW_GUESTS, Caller
from domain.portal.portal_session import MAX_PORTAL_SESSIONS, PortalId, PortalSession
from domain.redirects import parse_redirect_uri
from domain.storage import Storage, WriteUnit

EXPECTED_RETURN_URI: Final = "an address to which the center may send its guests back"

_DAY: Final = timedelta(days=1)


class OpenedPortal(NamedTuple):
    """The secret of a new link, and when the link expires. Only a hash of the secret is stored."""

    secret: str
    expires_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPortal:
    """Use case: make a link to a guest's own page at a center. Each call makes another link.

    At most 20 links can be made for a guest and a center in 24 hours. The audit trail notes the
    caller. A refused request stores nothing. Raises, in this order: UserNotAuthorized,
    InvalidCenterId, InvalidField (return_uri, locale), GuestIdNotUsable, GuestNotFound,
    PortalLimitReached.
    """

    needs = MAY_OPEN_PORTALS

    storage: Storage
    clock: Clock
    ids: Ids
    note_act: NoteAct

    def __call__(
        self,
        caller: Caller,
        *,
        access_token: str,
        guest_id: str,
        center_id: object,
        return_uri: object,
        locale: object,
    ) -> OpenedPortal:
        """Make the link. It stops working if `access_token`, the caller's token, is revoked."""
        caller.require(self.needs)
        center = parse_center_id(center_id)
        caller.require_center(center)
        secret, now = self.ids.secret(), self.clock.now()

        def make(unit: WriteUnit) -> OpenedPortal:
            configuration = unit.configurations.get(center)
            if unit.centers.get(center) is None:
                raise InvalidCenterId
            allowed = configuration.redirect_origins if configuration else ()
            try:
                shown_uri = parse_redirect_uri(return_uri, allowed=allowed)
            except (RedirectUriRequired, RedirectUriInvalid):
                raise InvalidField("return_uri", EXPECTED_RETURN_URI) from None
            language, guest = parse_locale(locale), parse_guest_id(guest_id)
            if unit.guests.get(guest) is None:
                raise GuestNotFound
            minutes = configuration.portal_minutes if configuration else DEFAULT_PORTAL_MINUTES
            recent = [
                each
                for each in unit.portal_sessions.of(guest)
                if each.center_id == center and now - _DAY < each.created_at
            ]
            if len(recent) >= MAX_PORTAL_SESSIONS:
                # The clock of another machine may be slightly ahead.
                wait = min(recent[-MAX_PORTAL_SESSIONS].created_at, now) + _DAY - now
                raise PortalLimitReached(max(1, ceil(wait.total_seconds())))
            session = PortalSession(
                portal_id=PortalId(self.ids.uuid()),
                secret_hash=hash_of(secret),
                guest_id=guest,
                center_id=center,
                caller=caller.name,
                access_token_hash=hash_of(access_token),
                shows_guest=caller.may(MAY_VIEW_GUESTS),
                return_uri=shown_uri,
                locale=language,
                created_at=now,
                expires_at=now + timedelta(minutes=minutes),
            )
            unit.portal_sessions.add(session)
            self.note_act(unit, Action.PORTAL_OPENED, guest, {"center": center}, caller=caller)
            unit.commit()
            return OpenedPortal(secret, session.expires_at)

        return self.storage.transact(make)
