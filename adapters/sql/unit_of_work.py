"""Units of work, which combine the repositories on one transaction."""

from __future__ import annotations

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
from domain.storage import WriteUnit


def unit_of_work(transaction: Transaction) -> WriteUnit:
    """Return a unit of work whose repositories use this transaction.

    If the transaction is read-only, it refuses writes and commits.
    """
    return WriteUnit(
        centers=SqlCenters(transaction),
        guests=SqlGuests(transaction),
        products=SqlProducts(transaction),
        configurations=SqlPaymentConfigurations(transaction),
        center_settings=SqlSettingsOfCenters(transaction),
        consent_texts=SqlConsentTexts(transaction),
        reservation_texts=SqlReservationTexts(transaction),
        agreements=SqlAgreements(transaction),
        sessions=SqlCardSessions(transaction),
        refused_cards=SqlRefusedCards(transaction),
        earlier_pages=SqlEarlierPages(transaction),
        evidence=SqlEvidenceLog(transaction),
        desk_links=SqlDeskLinks(transaction),
        portal_sessions=SqlPortalSessions(transaction),
        erasures=SqlErasures(transaction),
        idempotency_keys=SqlIdempotencyKeys(transaction),
        accounts=SqlAccounts(transaction),
        consents=SqlConsents(transaction),
        guest_references=SqlGuestReferences(transaction),
        merchant_identities=SqlMerchantIdentities(transaction),
        merchant_standings=SqlMerchantStandings(transaction),
        discards=SqlDiscards(transaction),
        events=SqlEvents(transaction),
        event_endpoints=SqlEventEndpoints(transaction),
        event_deliveries=SqlEventDeliveries(transaction),
        access_tokens=SqlAccessTokens(transaction),
        workers=SqlWorkers(transaction),
        audit_trail=SqlAuditTrail(transaction),
        installations=SqlInstallations(transaction),
        commit=transaction.commit,
    )
