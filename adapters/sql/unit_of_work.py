"""Units of work: the repositories over one transaction."""

from __future__ import annotations

from adapters.sql import repositories
from adapters.sql.transaction import Transaction
from domain.storage import WriteUnit


def unit_of_work(transaction: Transaction) -> WriteUnit:
    """Return the repositories over a transaction. One that only reads refuses writes and commits."""
    return WriteUnit(
        centers=repositories.SqlCenters(transaction),
        guests=repositories.SqlGuests(transaction),
        products=repositories.SqlProducts(transaction),
        configurations=repositories.SqlPaymentConfigurations(transaction),
        sessions=repositories.SqlCardSessions(transaction),
        refused_cards=repositories.SqlRefusedCards(transaction),
        evidence=repositories.SqlEvidenceLog(transaction),
        idempotency_keys=repositories.SqlIdempotencyKeys(transaction),
        accounts=repositories.SqlPaymentAccounts(transaction),
        guest_references=repositories.SqlGuestReferences(transaction),
        merchant_identities=repositories.SqlMerchantIdentities(transaction),
        discards=repositories.SqlDiscards(transaction),
        event_endpoints=repositories.SqlEventEndpoints(transaction),
        event_deliveries=repositories.SqlEventDeliveries(transaction),
        access_tokens=repositories.SqlAccessTokens(transaction),
        worker_heartbeats=repositories.SqlWorkerHeartbeats(transaction),
        commit=transaction.commit,
    )
