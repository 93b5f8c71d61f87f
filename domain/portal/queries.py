"""Use cases that read a guest's own page, and the page with the button that leads to it."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from domain.agreements.agreement import Agreement, running_among
from domain.cards.account import Account
from domain.cards.queries import general_consents
from domain.cards.take_back import stays_until
from domain.centers.center_settings import CenterSettings
from domain.centers.payment_configuration import GuestRemoval
from domain.centers.queries import removal_by_guests
from domain.consents.choose_consent import language_for
from domain.consents.given_consent import GivenConsent
from domain.guests.guest import Guest
from domain.hosted_payments.link import HostedLinks
from domain.identifiers import AccountId
from domain.outside import Clock
from domain.portal.find_portal import Visited, find_link, find_visit
from domain.portal.replace_card import configuration_of, may_be_replaced, newest_session
from domain.sessions.polling import Progress
from domain.sessions.session import CardSession, Replacement
from domain.storage import Storage, UnitOfWork


class Replacing(StrEnum):
    """The state of a card's replacement.

    `PENDING`: the guest has returned from the hosted payment page, and the PSP has not reported the
    outcome yet.
    """

    PENDING = "pending"
    REPLACED = "replaced"
    ON_FILE = "on_file"
    """The guest typed in a card that was already on file, so no card was replaced."""
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalCard:
    """A card as its guest sees it.

    `general` is the consent to charges that are not for a booking, or None if the guest gave no
    such consent. `running` are the agreements under which the card may be charged now.

    If the guest removed the card now, it would stay on file for these agreements until
    `stays_until`. If the guest withdrew the general consent now, the card would stay on file until
    `withdrawn_until`. Each of these times is None if the card would be removed at once.

    `may_be_replaced` is whether the page offers to replace the card.
    """

    account: Account
    has_expired: bool
    general: GivenConsent | None
    running: Sequence[Agreement]
    stays_until: datetime | None
    withdrawn_until: datetime | None
    may_be_replaced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Portal:
    """The content of a guest's own page.

    `guest` is None if the caller who made the link may not read guests. `replacing` is the state of
    the replacement in the guest's newest session at the center since the link was made. It is None
    in these cases:

    - There is no such session, or it replaces no card.
    - The session has no outcome, and the guest is not waiting for one.
    - The cards on file contradict the outcome, because they have changed since the session ended.
    """

    center_name: str
    settings: CenterSettings
    logo_uri: str | None
    language: str
    return_uri: str
    guest: Guest | None
    cards: Sequence[PortalCard] = ()
    replacing: Replacing | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPortalLink:
    """Use case: read the page that a link opens. Its button leads to the guest's own page.

    Changes nothing. `languages` are the languages in which the page exists. Raises PortalUnknown or
    PortalExpired.
    """

    storage: Storage
    links: HostedLinks
    languages: Collection[str]
    clock: Clock

    def __call__(self, secret: str, accepted: Sequence[str]) -> Portal:
        """Return the content of the page, without cards.

        `accepted` are the browser's languages, most preferred first.
        """
        with self.storage.read() as unit:
            visited = find_link(unit, secret, self.clock.now())
            return _portal(unit, self.links, visited, self.languages, accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPortal:
    """Use case: read a guest's own page, with the guest's cards at the center.

    Does not call a PSP. `languages` are the languages in which the page exists. Raises
    PortalEnded.
    """

    storage: Storage
    links: HostedLinks
    languages: Collection[str]
    clock: Clock

    def __call__(self, cookie: str | None, accepted: Sequence[str]) -> Portal:
        """Return the content of the page.

        `cookie` is the value of the browser's cookie, which identifies the visit. `accepted` are
        the browser's languages, most preferred first.
        """
        now = self.clock.now()
        with self.storage.read() as unit:
            visited = find_visit(unit, cookie, now)
            removal = removal_by_guests(unit, visited.center.id)
            takes_cards = configuration_of(unit, visited.center.id) is not None
            cards = [
                _card(unit, each, removal, now, takes_cards=takes_cards)
                for each in visited.accounts
            ]
            portal = _portal(unit, self.links, visited, self.languages, accepted)
            return replace(portal, cards=cards, replacing=_replacing(unit, visited))


def _portal(
    unit: UnitOfWork,
    links: HostedLinks,
    visited: Visited,
    languages: Collection[str],
    accepted: Sequence[str],
) -> Portal:
    """Return the content that the guest's own page and the page with the button share."""
    center, session = visited.center, visited.session
    settings = unit.center_settings.get(center.id)
    return Portal(
        center_name=center.name,
        settings=settings,
        logo_uri=links.logo_uri(center.id, settings.logo),
        language=language_for(
            visited.guest, settings, session.locale, accepted, available=languages
        ),
        return_uri=session.return_uri,
        guest=visited.guest if session.shows_guest else None,
    )


def _replacing(unit: UnitOfWork, visited: Visited) -> Replacing | None:
    """Return how far the guest's newest session is with replacing a card, if it replaces a card."""
    newest = newest_session(unit, visited.session)
    if newest is None or newest.replaces is None:
        return None
    on_file = {each.account_id for each in visited.accounts}
    return _outcome(newest, newest.replaces, on_file)


def _outcome(
    session: CardSession, replaces: Replacement, on_file: Collection[AccountId]
) -> Replacing | None:
    """Return the state of a replacement, or None if the cards on file contradict it."""
    has_former = replaces.account_id in on_file
    is_same = session.account_id == replaces.account_id
    if has_former and (is_same or session.existing_account_id in on_file):
        return Replacing.ON_FILE
    if session.account_id is not None:
        is_replaced = session.account_id in on_file and not has_former
        return Replacing.REPLACED if is_replaced else None
    if session.failure is not None:
        return Replacing.FAILED if has_former else None
    has_returned = session.progress is Progress.RETURNED and not session.is_over
    return Replacing.PENDING if has_returned else None


def _card(
    unit: UnitOfWork,
    account: Account,
    removal: GuestRemoval,
    now: datetime,
    *,
    takes_cards: bool,
) -> PortalCard:
    running = running_among(unit.agreements.of_account(account.account_id), now)
    return PortalCard(
        account=account,
        has_expired=account.has_expired(now),
        general=next(iter(general_consents(unit, account)), None),
        running=running,
        stays_until=stays_until(removal, running),
        withdrawn_until=stays_until(GuestRemoval.AFTER_AGREEMENT, running),
        may_be_replaced=takes_cards and may_be_replaced(account, running, now),
    )
