"""Use cases that read a session for the front desk, and its link for the guest."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Final

from domain.cards.account import Account
from domain.centers.center_settings import CenterSettings
from domain.consents.choose_consent import ChooseConsent
from domain.desk_links.find_desk import DeskLinkUnknown, find_desk
from domain.errors import (
    CenterKeepsOneCard,
    IncorrectBillingAddress,
    PaymentMethodAlreadyExists,
    PaymentMethodNotAccepted,
)
from domain.guests.guest import Guest
from domain.hosted_payments.link import HostedLinks
from domain.outside import Clock
from domain.permissions import MAY_ADD_CARDS, MAY_VIEW_GUESTS, Caller
from domain.sessions.end import SessionStatus
from domain.sessions.find_session import session_with_link
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession
from domain.storage import Storage, UnitOfWork

CARD_IS_SHOWN_FOR: Final = timedelta(seconds=60)
"""How long the front desk's page shows the stored card after the session has ended."""


class DeskState(StrEnum):
    """The state of a session, as the front desk's page shows it."""

    CREATED = "created"
    OPENED = "opened"
    RETURNED = "returned"
    LEFT = "left"
    ANOTHER_CARD = "another_card"
    STORED = "stored"
    DONE = "done"
    ON_FILE = "on_file"
    WRONG_ADDRESS = "wrong_address"
    NOT_ACCEPTED = "not_accepted"
    FAILED = "failed"
    CANCELLED = "cancelled"
    EXPIRED = "expired"


_BY_FAILURE: Final = {
    PaymentMethodAlreadyExists.type: DeskState.ON_FILE,
    CenterKeepsOneCard.type: DeskState.ON_FILE,
    IncorrectBillingAddress.type: DeskState.WRONG_ADDRESS,
    PaymentMethodNotAccepted.type: DeskState.NOT_ACCEPTED,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """The content of the front desk's page.

    `guest` is None if the caller who made the desk link may not read guests, or if the session is
    over and the page no longer shows a card. `link` is the link for the guest, in its short form if
    there is one, or None if the link no longer works. `language` is the guest's language. `card` is
    the stored card; it becomes None 60 seconds after the session ended. `is_final` means that the
    page will not change again.
    """

    state: DeskState
    label: str
    center_name: str
    settings: CenterSettings
    logo_uri: str | None
    guest: Guest | None
    link: str | None
    language: str
    card: Account | None
    is_final: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadDesk:
    """Use case: read a session for the front desk's page.

    Changes nothing and does not call a PSP. Raises DeskLinkUnknown or DeskLinkStopped.
    """

    storage: Storage
    links: HostedLinks
    choose_consent: ChooseConsent
    clock: Clock

    def __call__(self, secret: str) -> Desk:
        now = self.clock.now()
        with self.storage.read() as unit:
            link, caller, session = find_desk(unit, secret, now)
            center = unit.centers.get(session.center_id)
            if center is None:
                raise DeskLinkUnknown
            settings = unit.center_settings.get(center.id)
            guest = unit.guests.get(session.guest_id)
            consent = self.choose_consent(
                unit, center, guest, session.configuration.provider, session.locale, ()
            )
            card = _shown_card(unit, session, now)
        # After this time, a person who finds the page's address must not learn who the guest was.
        is_going_on = card is not None or not session.is_over
        return Desk(
            state=_state_of(session, card, now),
            label=link.label,
            center_name=center.name,
            settings=settings,
            logo_uri=self.links.logo_uri(center.id, settings.logo),
            guest=guest if is_going_on and caller.may(MAY_VIEW_GUESTS) else None,
            link=self.links.link_to_send(session) if session.has_link(now) else None,
            language=consent.language,
            card=card,
            # The page is not final while a card from before the cancellation may still be stored.
            is_final=session.is_over and card is None,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadLinkToSend:
    """Use case: read the link of a session, to send it to the guest.

    The result is the short form of the link if the link has a short form, otherwise the link.

    Raises UserNotAuthorized, SessionNotFound or SessionEnded.
    """

    needs = MAY_ADD_CARDS

    storage: Storage
    links: HostedLinks
    clock: Clock

    def __call__(self, caller: Caller, *, guest_id: str, token_id: str) -> str:
        caller.require(self.needs)
        with self.storage.read() as unit:
            session = session_with_link(
                unit, caller, guest_id=guest_id, token_id=token_id, now=self.clock.now()
            )
        return self.links.link_to_send(session)


def _shown_card(unit: UnitOfWork, session: CardSession, now: datetime) -> Account | None:
    ended_at = session.ended_at
    if session.account_id is None or ended_at is None or now >= ended_at + CARD_IS_SHOWN_FOR:
        return None
    account = unit.accounts.get(session.account_id)
    return account if account and account.removed_at is None else None


def _state_of(session: CardSession, card: Account | None, now: datetime) -> DeskState:
    if session.status is SessionStatus.COMPLETED:
        return DeskState.STORED if card else DeskState.DONE
    if session.failure is not None:
        return _BY_FAILURE.get(session.failure.type, DeskState.FAILED)
    if session.is_past_end(now):
        if session.cancelled_at is not None:
            return DeskState.CANCELLED
        if session.is_over or session.progress is not Progress.RETURNED:
            return DeskState.EXPIRED
    if session.not_accepted is not None:
        return DeskState.ANOTHER_CARD
    if session.progress is Progress.CANCELLED:
        return DeskState.LEFT
    return DeskState(session.progress)
