"""The use cases that only read: the page before a guest's own page, and the page itself."""

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
    """What has become of the new card for a card that the guest replaces."""

    PENDING = "pending"
    REPLACED = "replaced"
    FAILED = "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class PortalCard:
    """A card as its guest sees it.

    `general` is the consent to charges other than for bookings; None without such a consent. `running`
    are the agreements under which the card may be charged. `stays_until` is until when the card
    stays for them if the guest removes it; None if it is removed at once. `withdrawn_until` is the
    same for a withdrawal. `may_be_replaced` is as in the rule of this name.
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
    """What a guest's own page shows.

    `guest` is None if the caller of the link may not read guests. `replacing` is the outcome of the
    guest's latest replacement since the link was made, as long as the cards on file confirm it.
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
    """Use case: return what the page with the button shows. It changes nothing.

    `languages` are those of the page. Raises PortalUnknown or PortalExpired.
    """

    storage: Storage
    links: HostedLinks
    languages: Collection[str]
    clock: Clock

    def __call__(self, secret: str, accepted: Sequence[str]) -> Portal:
        """Return the page without cards. `accepted` are the browser's languages, best first."""
        with self.storage.read() as unit:
            visited = find_link(unit, secret, self.clock.now())
            return _portal(unit, self.links, visited, self.languages, accepted)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadPortal:
    """Use case: return a guest's cards at a center, for the guest. It asks no PSP.

    `languages` are those of the page. Raises PortalEnded.
    """

    storage: Storage
    links: HostedLinks
    languages: Collection[str]
    clock: Clock

    def __call__(self, cookie: str | None, accepted: Sequence[str]) -> Portal:
        """Return the page. `accepted` are the browser's languages, best first."""
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
    """Return the page without what only its cards need."""
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
    """Return the outcome of the newest session, if the guest began it on this page."""
    newest = newest_session(unit, visited.session)
    if newest is None or newest.replaces is None:
        return None
    on_file = {each.account_id for each in visited.accounts}
    return _outcome(newest, newest.replaces, on_file)


def _outcome(
    session: CardSession, replaces: Replacement, on_file: Collection[AccountId]
) -> Replacing | None:
    """Return the outcome as the cards on file show it, or None if they have changed otherwise."""
    has_former = replaces.account_id in on_file
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
