"""Units of work: the repositories over one transaction."""

from __future__ import annotations

from adapters.sql import repositories
from adapters.sql.transaction import Transaction


class UnitOfWork:
    """The repositories over one transaction; an implementation of `ports.UnitOfWork`."""

    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self.centers = repositories.Centers(transaction)
        self.guests = repositories.Guests(transaction)
        self.products = repositories.Products(transaction)
        self.configurations = repositories.PaymentConfigurations(transaction)
        self.sessions = repositories.CardSessions(transaction)
        self.refused_cards = repositories.RefusedCards(transaction)
        self.evidence = repositories.EvidenceLog(transaction)
        self.idempotency_keys = repositories.IdempotencyKeys(transaction)
        self.accounts = repositories.PaymentAccounts(transaction)
        self.guest_references = repositories.GuestReferences(transaction)
        self.merchant_identities = repositories.MerchantIdentities(transaction)
        self.discards = repositories.Discards(transaction)
        self.event_endpoints = repositories.EventEndpoints(transaction)
        self.event_deliveries = repositories.EventDeliveries(transaction)
        self.access_tokens = repositories.AccessTokens(transaction)
        self.worker_heartbeats = repositories.WorkerHeartbeats(transaction)


class WriteUnit(UnitOfWork):
    """The repositories over a write transaction; an implementation of `ports.WriteUnit`."""

    def commit(self) -> None:
        """Commit, as `ports.WriteUnit.commit` says."""
        self._transaction.commit()
