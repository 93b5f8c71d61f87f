"""Units of work, which combine the repositories on one transaction."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from adapters.sql.repositories.access import SqlAccessTokens
from adapters.sql.repositories.agreements import SqlAgreements, SqlReservationTexts
from adapters.sql.repositories.audit import SqlAuditTrail
from adapters.sql.repositories.cards import SqlAccounts, SqlDiscards
from adapters.sql.repositories.centers import (
    SqlCenters,
    SqlPaymentConfigurations,
    SqlSettingsOfCenters,
)
from adapters.sql.repositories.consents import SqlConsents, SqlConsentTexts
from adapters.sql.repositories.desk_links import SqlDeskLinks
from adapters.sql.repositories.events import (
    SqlEventDeliveries,
    SqlEventEndpoints,
    SqlEvents,
)
from adapters.sql.repositories.guests import SqlGuests
from adapters.sql.repositories.installation import SqlInstallations
from adapters.sql.repositories.personal_data import SqlErasures
from adapters.sql.repositories.portal import SqlPortalSessions
from adapters.sql.repositories.products import SqlProducts
from adapters.sql.repositories.psps import (
    SqlGuestReferences,
    SqlMerchantIdentities,
    SqlMerchantStandings,
)
from adapters.sql.repositories.sessions import (
    SqlCardSessions,
    SqlEarlierPages,
    SqlEvidenceLog,
    SqlIdempotencyKeys,
    SqlRefusedCards,
)
from adapters.sql.repositories.worker import SqlWorkers
from adapters.sql.transaction import Transaction
from domain.access.token import AccessTokens
from domain.agreements.agreement import Agreements
from domain.agreements.reservation_text import ReservationTexts
from domain.audit.entry import AuditTrail
from domain.cards.account import Accounts
from domain.cards.discard import Discards
from domain.centers.center import Centers
from domain.centers.center_settings import SettingsOfCenters
from domain.centers.payment_configuration import PaymentConfigurations
from domain.consents.consent_text import ConsentTexts
from domain.consents.given_consent import Consents
from domain.desk_links.desk_link import DeskLinks
from domain.events.event import EventDeliveries, EventEndpoints
from domain.events.event_list import Events
from domain.guests.guest import Guests
from domain.installation.installation import Installations
from domain.personal_data.erasure import Erasures
from domain.portal.portal_session import PortalSessions
from domain.products.product import Products
from domain.psps.merchant_standing import MerchantStandings
from domain.psps.references import GuestReferences, MerchantIdentities
from domain.sessions.earlier_page import EarlierPages
from domain.sessions.refused_card import RefusedCards
from domain.sessions.session import CardSessions, EvidenceLog, IdempotencyKeys
from domain.worker.heartbeat import Workers

Port = TypeVar("Port")


class OnFirstUse(Generic[Port]):
    """A repository of a unit, which is made when the unit first uses the repository.

    A unit uses only a few of its repositories. Making all of them took 4% of the time of an
    add-card request.
    """

    def __init__(self, make: Callable[[Transaction], Port]) -> None:
        self._make = make

    def __set_name__(self, _: type, name: str) -> None:
        self._name = name

    def __get__(self, unit: SqlUnit, _: type) -> Port:
        made = self._make(unit.transaction)
        # The next access finds the repository in the unit itself.
        unit.__dict__[self._name] = made
        return made


class SqlUnit:
    """A unit of work, whose repositories share one transaction.

    If the transaction is read-only, the unit can neither write nor commit.
    """

    centers: OnFirstUse[Centers] = OnFirstUse(SqlCenters)
    guests: OnFirstUse[Guests] = OnFirstUse(SqlGuests)
    products: OnFirstUse[Products] = OnFirstUse(SqlProducts)
    configurations: OnFirstUse[PaymentConfigurations] = OnFirstUse(SqlPaymentConfigurations)
    center_settings: OnFirstUse[SettingsOfCenters] = OnFirstUse(SqlSettingsOfCenters)
    consent_texts: OnFirstUse[ConsentTexts] = OnFirstUse(SqlConsentTexts)
    reservation_texts: OnFirstUse[ReservationTexts] = OnFirstUse(SqlReservationTexts)
    agreements: OnFirstUse[Agreements] = OnFirstUse(SqlAgreements)
    sessions: OnFirstUse[CardSessions] = OnFirstUse(SqlCardSessions)
    refused_cards: OnFirstUse[RefusedCards] = OnFirstUse(SqlRefusedCards)
    earlier_pages: OnFirstUse[EarlierPages] = OnFirstUse(SqlEarlierPages)
    evidence: OnFirstUse[EvidenceLog] = OnFirstUse(SqlEvidenceLog)
    desk_links: OnFirstUse[DeskLinks] = OnFirstUse(SqlDeskLinks)
    portal_sessions: OnFirstUse[PortalSessions] = OnFirstUse(SqlPortalSessions)
    erasures: OnFirstUse[Erasures] = OnFirstUse(SqlErasures)
    idempotency_keys: OnFirstUse[IdempotencyKeys] = OnFirstUse(SqlIdempotencyKeys)
    accounts: OnFirstUse[Accounts] = OnFirstUse(SqlAccounts)
    consents: OnFirstUse[Consents] = OnFirstUse(SqlConsents)
    guest_references: OnFirstUse[GuestReferences] = OnFirstUse(SqlGuestReferences)
    merchant_identities: OnFirstUse[MerchantIdentities] = OnFirstUse(SqlMerchantIdentities)
    merchant_standings: OnFirstUse[MerchantStandings] = OnFirstUse(SqlMerchantStandings)
    discards: OnFirstUse[Discards] = OnFirstUse(SqlDiscards)
    events: OnFirstUse[Events] = OnFirstUse(SqlEvents)
    event_endpoints: OnFirstUse[EventEndpoints] = OnFirstUse(SqlEventEndpoints)
    event_deliveries: OnFirstUse[EventDeliveries] = OnFirstUse(SqlEventDeliveries)
    access_tokens: OnFirstUse[AccessTokens] = OnFirstUse(SqlAccessTokens)
    workers: OnFirstUse[Workers] = OnFirstUse(SqlWorkers)
    audit_trail: OnFirstUse[AuditTrail] = OnFirstUse(SqlAuditTrail)
    installations: OnFirstUse[Installations] = OnFirstUse(SqlInstallations)

    def __init__(self, transaction: Transaction) -> None:
        self.transaction = transaction
        self.commit = transaction.commit
