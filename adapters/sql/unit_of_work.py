"""The repositories of a transaction, as one."""

from __future__ import annotations

from typing_extensions import override

from adapters.sql import repositories
from adapters.sql.imports import Imports
from adapters.sql.transaction import Transaction
from domain import ports


class UnitOfWork(ports.UnitOfWork):
    """The repositories over one transaction."""

    def __init__(self, transaction: Transaction, imports: Imports) -> None:
        self._transaction = transaction
        self._imports = imports

    @property
    @override
    def centers(self) -> ports.Centers:
        return repositories.Centers(self._transaction, self._imports)

    @property
    @override
    def guests(self) -> ports.Guests:
        return repositories.Guests(self._transaction, self._imports)

    @property
    @override
    def products(self) -> ports.Products:
        return repositories.Products(self._transaction, self._imports)

    @property
    @override
    def configurations(self) -> ports.PaymentConfigurations:
        return repositories.PaymentConfigurations(self._transaction)

    @property
    @override
    def sessions(self) -> ports.CardSessions:
        return repositories.CardSessions(self._transaction)

    @property
    @override
    def evidence(self) -> ports.EvidenceLog:
        return repositories.EvidenceLog(self._transaction)

    @property
    @override
    def idempotency_keys(self) -> ports.IdempotencyKeys:
        return repositories.IdempotencyKeys(self._transaction)

    @property
    @override
    def accounts(self) -> ports.PaymentAccounts:
        return repositories.PaymentAccounts(self._transaction)

    @property
    @override
    def guest_references(self) -> ports.GuestReferences:
        return repositories.GuestReferences(self._transaction)

    @property
    @override
    def merchant_identities(self) -> ports.MerchantIdentities:
        return repositories.MerchantIdentities(self._transaction)

    @property
    @override
    def discards(self) -> ports.Discards:
        return repositories.Discards(self._transaction)

    @property
    @override
    def access_tokens(self) -> ports.AccessTokens:
        return repositories.AccessTokens(self._transaction)

    @property
    @override
    def worker_heartbeats(self) -> ports.WorkerHeartbeats:
        return repositories.WorkerHeartbeats(self._transaction)
