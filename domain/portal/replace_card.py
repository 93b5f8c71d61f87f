"""A guest replaces a card on the guest's own page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from domain.agreements.agreement import Agreement, running_among
from domain.agreements.terms import Reuse
from domain.cards.account import Account
from domain.centers.card_limit import CardLimit
from domain.centers.payment_configuration import PaymentConfiguration
from domain.errors import PaymentAccountNotFound, PaymentConfigurationNotDone
from domain.hosted_payments.link import HostedLinks
from domain.identifiers import CenterId
from domain.outside import Clock, Ids, Traces
from domain.pagination import PageRequest
from domain.portal.find_portal import find_visit
from domain.portal.portal_session import PortalSession
from domain.sessions.add_card import new_session
from domain.sessions.card_testing import require_below_limits
from domain.sessions.request import RequestedSession
from domain.sessions.session import CardSession, Replacement
from domain.sessions.session_log import SessionLog, SessionStep, Step
from domain.storage import Storage, UnitOfWork, WriteUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplaceCard:
    """Use case: start a session whose card will replace one of a guest's cards; return its link.

    The hosted payment page of the session leads back to the guest's own page. In the session, the
    guest agrees again to the bookings that are not over yet. The old card stays on file until the
    new card is stored (`take_replaced.py`).

    As long as the link works, a repeated call returns the same link. A guest who presses the button
    several times therefore does not use up the `limits` against card testing.

    Raises PortalEnded, PaymentAccountNotFound, PaymentConfigurationNotDone or CardLimitReached.
    """

    storage: Storage
    limits: Sequence[CardLimit]
    links: HostedLinks
    clock: Clock
    ids: Ids
    traces: Traces
    log: SessionLog

    def __call__(self, cookie: str | None, account_id: str) -> str:
        def start(unit: WriteUnit) -> tuple[CardSession, bool]:
            now = self.clock.now()
            visited = find_visit(unit, cookie, now)
            account = visited.account(account_id)
            if account is None:
                raise PaymentAccountNotFound
            configuration = configuration_of(unit, account.center_id)
            if configuration is None:
                raise PaymentConfigurationNotDone
            running = running_among(unit.agreements.of_account(account.account_id), now)
            if not may_be_replaced(account, running, now):
                raise PaymentAccountNotFound
            bookings = [
                replace(each.terms, replaces=each.agreement_id, reuse=Reuse.NEVER)
                for each in running
                if each.is_open(now)
            ]
            agreement = bookings[0] if bookings else None
            replaces = Replacement(account_id=account.account_id, further=tuple(bookings[1:]))
            newest = newest_session(unit, visited.session)
            if newest is not None and newest.has_link(now):
                if (newest.agreement, newest.replaces) == (agreement, replaces):
                    return newest, False
            wanted = RequestedSession(
                guest_id=account.guest_id,
                center_id=account.center_id,
                redirect_uri=self.links.portal_page_uri,
                source=account.source,
                billing_info=None,
                locale=visited.session.locale,
                agreement=agreement,
            )
            session = new_session(
                wanted,
                configuration,
                caller=visited.session.caller,
                shows_guest=visited.session.shows_guest,
                ids=self.ids,
                trace=self.traces.current(),
                now=now,
            )
            require_below_limits(unit, configuration.card_limits(self.limits), session, now)
            started = replace(session, replaces=replaces)
            unit.sessions.add(started)
            unit.commit()
            return started, True

        session, is_new = self.storage.transact(start)
        if is_new:
            self.log(SessionStep(Step.CREATED, session))
        return self.links.hosted_payment_uri(session)


def newest_session(unit: UnitOfWork, of: PortalSession) -> CardSession | None:
    """Return the newest card-addition session of a portal session's guest at its center.

    Return None if there was no session after the portal session `of` was created.
    """
    centers = frozenset({of.center_id})
    newest = unit.sessions.page(of.guest_id, centers, PageRequest(size=1)).items
    return next((each for each in newest if each.created_at >= of.created_at), None)


def configuration_of(unit: UnitOfWork, center_id: CenterId) -> PaymentConfiguration | None:
    """Return the payment configuration of a center, or None if it cannot take cards now."""
    configuration = unit.configurations.get(center_id)
    if configuration and unit.merchant_standings.of(configuration.psp_account).is_closed:
        return None
    return configuration


def may_be_replaced(account: Account, running: Sequence[Agreement], now: datetime) -> bool:
    """Return whether the guest may replace a card.

    The card must be on file without an end date, or guarantee a booking that is not over yet. To
    replace any other card, the guest would have to agree to more charges than the old card allows.
    `running` are the card's running agreements.
    """
    return account.keep_until is None or any(each.is_open(now) for each in running)
