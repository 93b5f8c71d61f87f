"""The repositories, each over the connection of the unit of work that it belongs to."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from datetime import datetime
from hashlib import sha256
from secrets import randbits
from typing import Final

from typing_extensions import override

from adapters.sqlite.connection import IntegrityError, Transaction
from adapters.sqlite.rows import Record, Rows, time_text
from domain import ports
from domain.access_tokens import AccessToken
from domain.card_sessions import CardSession, DueSession
from domain.centers import Center
from domain.discards import Discard
from domain.guests import Guest
from domain.hosted_pages import Evidence
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
)
from domain.pagination import Page, PageRequest
from domain.payment_accounts import PaymentAccount
from domain.payment_configuration import PaymentConfiguration
from domain.products import Product

MAX_EVIDENCE_PER_ORIGIN: Final = 50
MAX_KEYS_FORGOTTEN: Final = 1_000
"""How many idempotency keys one call removes, so that no unit of work grows long."""

_CENTERS = Rows("centers", Center, key=("id",), beside=("import_id",))
_GUESTS = Rows("guests", Guest, key=("id",), beside=("import_id",))
_PRODUCTS = Rows(
    "products",
    Product,
    key=("id",),
    beside=("import_id",),
    made={
        "position": "(SELECT coalesce(max(position), 0) + 1 FROM products "
        "WHERE center_id = :center_id)"
    },
)
_CONFIGURATIONS = Rows(
    "payment_configurations", PaymentConfiguration, key=("center_id",), beside=("center_id",)
)
_SESSIONS = Rows("card_sessions", CardSession, key=("token_id",))
_EVIDENCE = Rows(
    "evidence",
    Evidence,
    key=("token_id", "origin", "content_hash"),
    beside=("token_id", "content_hash"),
)
_ACCOUNTS = Rows("payment_accounts", PaymentAccount, key=("account_id",))
_DISCARDS = Rows("discards", Discard, key=("provider", "merchant_account", "token"))
_ACCESS_TOKENS = Rows("access_tokens", AccessToken, key=("token_hash",))

_DUE_SESSION = (
    "SELECT rowid FROM card_sessions WHERE due_at <= :now "
    "AND json_extract(configuration, '$.provider') || '/' || "
    "json_extract(configuration, '$.merchant_account') "
    "NOT IN (SELECT value FROM json_each(:except_at)) ORDER BY due_at LIMIT 1"
)
_DUE_DISCARD = (
    "SELECT rowid FROM discards WHERE due_at <= :now "
    "AND provider || '/' || merchant_account "
    "NOT IN (SELECT value FROM json_each(:except_at)) ORDER BY due_at LIMIT 1"
)


def _due(now: datetime, except_at: Collection[PspAccount]) -> dict[str, str]:
    return {"now": time_text(now), "except_at": json.dumps(["/".join(each) for each in except_at])}


def _is_any(transaction: Transaction, statement: str, values: dict[str, str]) -> bool:
    return transaction.execute(statement, values).fetchone() is not None


class _InUnit:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction


class Centers(_InUnit, ports.Centers):
    """The centers on file."""

    @override
    def get(self, center_id: CenterId) -> Center | None:
        return _CENTERS.find_one(self._transaction, "WHERE id = :id", {"id": center_id})

    @override
    def put_many(self, centers: Iterable[Center]) -> None:
        _import(self._transaction, _CENTERS, centers)


class Guests(_InUnit, ports.Guests):
    """The guests on file."""

    @override
    def get(self, guest_id: GuestId) -> Guest | None:
        return _GUESTS.find_one(self._transaction, "WHERE id = :id", {"id": guest_id})

    @override
    def put_many(self, guests: Iterable[Guest]) -> None:
        _import(self._transaction, _GUESTS, guests)


class Products(_InUnit, ports.Products):
    """The products on file. Each keeps the position that it got within its center at first."""

    @override
    def page(self, center_id: CenterId, request: PageRequest) -> Page[Product]:
        (total,) = self._transaction.execute(
            "SELECT coalesce(max(position), 0) FROM products WHERE center_id = ?", (center_id,)
        ).fetchone()
        if request.before >= total:
            return Page(items=(), total=total, request=request)
        items = _PRODUCTS.find(
            self._transaction,
            "WHERE center_id = :center_id AND position > :before AND position <= :last "
            "ORDER BY position",
            {
                "center_id": center_id,
                "before": request.before,
                "last": request.before + request.size,
            },
        )
        return Page(items=items, total=total, request=request)

    @override
    def put_many(self, products: Iterable[Product]) -> None:
        _import(self._transaction, _PRODUCTS, products, keeping="center_id")


class PaymentConfigurations(_InUnit, ports.PaymentConfigurations):
    """What each center has set up."""

    @override
    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        return _CONFIGURATIONS.find_one(
            self._transaction, "WHERE center_id = :center_id", {"center_id": center_id}
        )

    @override
    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        self._transaction.execute(
            _CONFIGURATIONS.insert + _CONFIGURATIONS.or_replace,
            _CONFIGURATIONS.row(configuration) | {"center_id": center_id},
        )

    @override
    def remove(self, center_id: CenterId) -> None:
        self._transaction.execute(
            "DELETE FROM payment_configurations WHERE center_id = ?", (center_id,)
        )

    @override
    def merchant_accounts(self) -> frozenset[tuple[ProviderName, MerchantAccount]]:
        named = self._transaction.execute(
            "SELECT DISTINCT provider, merchant_account FROM payment_configurations"
        )
        return frozenset(
            (ProviderName(provider), MerchantAccount(account))
            for provider, account in named.fetchall()
        )


class CardSessions(_InUnit, ports.CardSessions):
    """Card-addition sessions."""

    @override
    def add(self, session: CardSession) -> None:
        self._transaction.execute(_SESSIONS.insert, _SESSIONS.row(session))

    @override
    def get(self, token_id: TokenId) -> CardSession | None:
        return _SESSIONS.find_one(
            self._transaction, "WHERE token_id = :token_id", {"token_id": token_id}
        )

    @override
    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        return _SESSIONS.find_one(
            self._transaction,
            "WHERE json_extract(attempt, '$.page.reference') = :page_reference "
            "AND json_extract(configuration, '$.provider') = :provider "
            "AND json_extract(configuration, '$.merchant_account') = :merchant_account",
            {
                "provider": provider,
                "merchant_account": merchant_account,
                "page_reference": page_reference,
            },
        )

    @override
    def update(self, session: CardSession) -> None:
        self._transaction.execute(_SESSIONS.update, _SESSIONS.row(session))

    @override
    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        return _is_any(self._transaction, _DUE_SESSION, _due(now, except_at))

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> DueSession | None:
        taken = self._transaction.execute(
            f"UPDATE card_sessions SET due_at = :until WHERE rowid = ({_DUE_SESSION}) "
            "RETURNING token_id, coalesce(json_extract(configuration, '$.provider'), ''), "
            "coalesce(json_extract(configuration, '$.merchant_account'), '')",
            {**_due(now, except_at), "until": time_text(until)},
        ).fetchall()
        return next(
            (DueSession(token_id, PspAccount(*account)) for token_id, *account in taken), None
        )


class EvidenceLog(_InUnit, ports.EvidenceLog):
    """What PSPs said of sessions outside of their answers."""

    @override
    def add(self, token_id: TokenId, evidence: Evidence) -> None:
        (kept,) = self._transaction.execute(
            "SELECT count(*) FROM evidence WHERE token_id = ? AND origin = ?",
            (token_id, evidence.origin),
        ).fetchone()
        if kept < MAX_EVIDENCE_PER_ORIGIN:
            content_hash = sha256(evidence.content.encode()).hexdigest()
            self._transaction.execute(
                _EVIDENCE.insert + "ON CONFLICT DO NOTHING",
                _EVIDENCE.row(evidence) | {"token_id": token_id, "content_hash": content_hash},
            )

    @override
    def of(self, token_id: TokenId) -> Sequence[Evidence]:
        return _EVIDENCE.find(
            self._transaction,
            "WHERE token_id = :token_id ORDER BY received_at, rowid",
            {"token_id": token_id},
        )


class IdempotencyKeys(_InUnit, ports.IdempotencyKeys):
    """Which session a caller's Idempotency-Key stands for."""

    @override
    def get(self, caller: CallerName, key: str, *, since: datetime) -> TokenId | None:
        row = self._transaction.execute(
            "SELECT token_id FROM idempotency_keys WHERE caller = ? AND key = ? AND used_at > ?",
            (caller, key, time_text(since)),
        ).fetchone()
        return None if row is None else TokenId(row[0])

    @override
    def claim(
        self, caller: CallerName, key: str, token_id: TokenId, *, now: datetime, since: datetime
    ) -> TokenId:
        self._transaction.execute(
            "INSERT INTO idempotency_keys (caller, key, token_id, used_at) "
            "VALUES (:caller, :key, :token_id, :now) ON CONFLICT (caller, key) DO UPDATE "
            "SET token_id = excluded.token_id, used_at = excluded.used_at WHERE used_at <= :since",
            {
                "caller": caller,
                "key": key,
                "token_id": token_id,
                "now": time_text(now),
                "since": time_text(since),
            },
        )
        (standing,) = self._transaction.execute(
            "SELECT token_id FROM idempotency_keys WHERE caller = ? AND key = ?", (caller, key)
        ).fetchone()
        return TokenId(standing)

    @override
    def forget(self, *, before: datetime) -> int:
        forgotten = self._transaction.execute(
            "DELETE FROM idempotency_keys WHERE rowid IN (SELECT rowid FROM idempotency_keys "
            "WHERE used_at < ? ORDER BY used_at LIMIT ?)",
            (time_text(before), MAX_KEYS_FORGOTTEN),
        )
        return int(forgotten.rowcount)


class PaymentAccounts(_InUnit, ports.PaymentAccounts):
    """Cards on file."""

    @override
    def add(self, account: PaymentAccount) -> None:
        added = self._transaction.execute(
            _ACCOUNTS.insert + "ON CONFLICT DO NOTHING", _ACCOUNTS.row(account)
        )
        if added.rowcount == 0:
            raise ports.AlreadyStored

    @override
    def get(self, account_id: AccountId) -> PaymentAccount | None:
        return _ACCOUNTS.find_one(
            self._transaction, "WHERE account_id = :account_id", {"account_id": account_id}
        )

    @override
    def update(self, account: PaymentAccount) -> None:
        self._transaction.execute(_ACCOUNTS.update, _ACCOUNTS.row(account))

    @override
    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[PaymentAccount]:
        return _ACCOUNTS.find(
            self._transaction,
            "WHERE guest_id = :guest_id AND center_id = :center_id AND removed_at IS NULL "
            "ORDER BY sequence",
            {"guest_id": guest_id, "center_id": center_id},
        )

    @override
    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        row = self._transaction.execute(
            "SELECT 1 FROM payment_accounts WHERE provider = ? AND merchant_account = ? "
            "AND token = ? AND removed_at IS NULL LIMIT 1",
            (provider, merchant_account, token),
        ).fetchone()
        return row is not None

    @override
    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[PaymentAccount]:
        condition = "WHERE guest_id = :guest_id AND removed_at IS NULL "
        if centers is not None:
            condition += "AND center_id IN (SELECT value FROM json_each(:centers)) "
        values = {"guest_id": guest_id, "centers": json.dumps(sorted(centers or ()))}
        (total,) = self._transaction.execute(
            "SELECT count(*) FROM payment_accounts " + condition, values
        ).fetchone()
        if request.before >= total:
            return Page(items=(), total=total, request=request)
        items = _ACCOUNTS.find(
            self._transaction,
            condition + "ORDER BY sequence LIMIT :size OFFSET :before",
            values | {"size": request.size, "before": request.before},
        )
        return Page(items=items, total=total, request=request)


class GuestReferences(_InUnit, ports.GuestReferences):
    """The PSPs' own references for our guests."""

    @override
    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, guest_id: GuestId
    ) -> GuestReference | None:
        row = self._transaction.execute(
            "SELECT reference FROM guest_references "
            "WHERE provider = ? AND merchant_account = ? AND guest_id = ?",
            (provider, merchant_account, guest_id),
        ).fetchone()
        return None if row is None else GuestReference(row[0])

    @override
    def keep(
        self,
        provider: ProviderName,
        merchant_account: MerchantAccount,
        guest_id: GuestId,
        reference: GuestReference,
    ) -> None:
        self._transaction.execute(
            "INSERT INTO guest_references (provider, merchant_account, guest_id, reference) "
            "VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET reference = excluded.reference",
            (provider, merchant_account, guest_id, reference),
        )


class MerchantIdentities(_InUnit, ports.MerchantIdentities):
    """Whose keys the merchant accounts have."""

    @override
    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        row = self._transaction.execute(
            "SELECT identity FROM merchant_identities WHERE provider = ? AND merchant_account = ?",
            (provider, merchant_account),
        ).fetchone()
        return None if row is None else str(row[0])

    @override
    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        self._transaction.execute(
            "INSERT INTO merchant_identities (provider, merchant_account, identity) "
            "VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
            (provider, merchant_account, identity),
        )
        return self.get(provider, merchant_account) or identity


class Discards(_InUnit, ports.Discards):
    """Tokens that are still to be discarded at their PSP."""

    @override
    def add(self, discard: Discard) -> None:
        self._transaction.execute(
            _DISCARDS.insert + "ON CONFLICT DO NOTHING", _DISCARDS.row(discard)
        )

    @override
    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> Discard | None:
        return _DISCARDS.find_one(
            self._transaction,
            "WHERE provider = :provider AND merchant_account = :merchant_account "
            "AND token = :token",
            {"provider": provider, "merchant_account": merchant_account, "token": token},
        )

    @override
    def update(self, discard: Discard) -> None:
        self._transaction.execute(_DISCARDS.update, _DISCARDS.row(discard))

    @override
    def remove(self, discard: Discard) -> None:
        self._transaction.execute(
            "DELETE FROM discards WHERE provider = ? AND merchant_account = ? AND token = ?",
            (discard.provider, discard.merchant_account, discard.token),
        )

    @override
    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        return _is_any(self._transaction, _DUE_DISCARD, _due(now, except_at))

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Discard | None:
        taken = _DISCARDS.take(
            self._transaction,
            f"UPDATE discards SET due_at = :until WHERE rowid = ({_DUE_DISCARD}) "
            f"RETURNING {_DISCARDS.listed}",
            {**_due(now, except_at), "until": time_text(until)},
        )
        return taken[0] if taken else None


class AccessTokens(_InUnit, ports.AccessTokens):
    """Issued access tokens, by hash."""

    @override
    def add(self, token: AccessToken) -> None:
        self._transaction.execute(_ACCESS_TOKENS.insert, _ACCESS_TOKENS.row(token))

    @override
    def get(self, token_hash: str) -> AccessToken | None:
        return _ACCESS_TOKENS.find_one(
            self._transaction, "WHERE token_hash = :token_hash", {"token_hash": token_hash}
        )

    @override
    def all(self) -> Sequence[AccessToken]:
        return _ACCESS_TOKENS.find(self._transaction, "ORDER BY issued_at, rowid", {})

    @override
    def update(self, token: AccessToken) -> None:
        self._transaction.execute(_ACCESS_TOKENS.update, _ACCESS_TOKENS.row(token))


class WorkerHeartbeats(_InUnit, ports.WorkerHeartbeats):
    """The last heartbeat of any worker, in one row."""

    @override
    def last(self) -> datetime | None:
        row = self._transaction.execute("SELECT left_at FROM worker_heartbeats").fetchone()
        return None if row is None else datetime.fromisoformat(row[0])

    @override
    def leave(self, now: datetime) -> None:
        self._transaction.execute(
            "INSERT OR REPLACE INTO worker_heartbeats (id, left_at) VALUES (1, ?)",
            (time_text(now),),
        )


def _import(
    transaction: Transaction,
    rows: Rows[Record],
    records: Iterable[Record],
    *,
    keeping: str | None = None,
) -> None:
    """Store records one by one, so at constant memory, updating those that are there.

    `keeping` names a column that no update may change. Each row keeps the id of the import that it
    was last in, which tells a record that comes twice from one that was there before.
    """
    statement = rows.insert + rows.or_replace + "WHERE import_id <> excluded.import_id"
    if keeping is not None:
        statement += f" AND {keeping} = excluded.{keeping}"
    import_id = randbits(63)
    for index, record in enumerate(records):
        row = rows.row(record) | {"import_id": import_id}
        try:
            stored = transaction.execute(statement, row)
        except IntegrityError as error:
            # The one constraint that a record can break is the foreign key to its center.
            raise ports.UnknownCenterInImport(index) from error
        if stored.rowcount == 0:
            if rows.find(transaction, "WHERE id = :id AND import_id = :import_id", row):
                raise ports.DuplicateInImport(index)
            raise ports.CenterChangedInImport(index)
