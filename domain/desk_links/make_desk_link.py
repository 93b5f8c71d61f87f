"""Make a link to the front desk's page of a session."""

from __future__ import annotations

from dataclasses import dataclass

from domain.access.token import hash_of
from domain.desk_links.desk_link import MAX_DESK_LINKS, MAX_LABEL_LENGTH, DeskLink
from domain.errors import TooManyDeskLinks
from domain.fields import parse_line, without_card_number
from domain.outside import Clock, Ids
from domain.permissions import MAY_ADD_CARDS, Caller
from domain.sessions.find_session import session_with_link
from domain.storage import Storage, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class MakeDeskLink:
    """Use case: make a link to the front desk's page of a session, and return its secret.

    The secret cannot be read later, because only its hash is stored. Each call makes another link.
    A session can have at most 20 desk links.

    As soon as a session has a desk link, the link for the guest does not offer a card on file,
    because another person at the desk could use the guest's card. Raises UserNotAuthorized,
    InvalidField (label), SessionNotFound, SessionEnded or TooManyDeskLinks.
    """

    needs = MAY_ADD_CARDS

    storage: Storage
    clock: Clock
    ids: Ids

    def __call__(
        self, caller: Caller, *, access_token: str, guest_id: str, token_id: str, label: object
    ) -> str:
        """Make the link. It stops working if `access_token`, the caller's token, is revoked."""
        caller.require(self.needs)
        shown = parse_line("label", label, max_length=MAX_LABEL_LENGTH)
        without_card_number("label", shown)
        secret, now = self.ids.secret(), self.clock.now()

        def make(unit: WriteUnit) -> str:
            session = session_with_link(unit, caller, guest_id=guest_id, token_id=token_id, now=now)
            if len(unit.desk_links.of(session.token_id)) >= MAX_DESK_LINKS:
                raise TooManyDeskLinks
            unit.desk_links.add(
                DeskLink(
                    secret_hash=hash_of(secret),
                    token_id=session.token_id,
                    label=shown,
                    caller=caller,
                    access_token_hash=hash_of(access_token),
                    created_at=now,
                )
            )
            unit.commit()
            return secret

        return self.storage.transact(make)
