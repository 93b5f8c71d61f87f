"""The repositories, each over the transaction of its unit of work.

Both databases understand the SQL; where it differs, the `Dialect` has the fragment. In a write
unit, what is read in order to be changed is locked until the unit ends: a row by FOR UPDATE, what
may not exist yet by a lock on a key. On SQLite neither does anything, because a write unit locks
the whole database.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import date, datetime
from hashlib import sha256
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
from typing_extensions import override

from adapters.sql.rows import Record, Rows
from adapters.sql.transaction import Transaction, Values
from domain.access.token import AccessToken, AccessTokens
from domain.cards.account import PaymentAccount, PaymentAccounts
from domain.cards.discard import Discard, Discards
from domain.centers.center import Center, Centers
from domain.centers.payment_configuration import PaymentConfiguration, PaymentConfigurations
from domain.events.event import (
    LONGEST_WAIT,
    DueDelivery,
    EventDeliveries,
    EventDelivery,
    EventEndpoint,
    EventEndpoints,
)
from domain.guests.guest import Guest, Guests
from domain.identifiers import (
    AccountId,
    CallerName,
    CardToken,
    CenterId,
    EndpointId,
    EventId,
    GuestId,
    GuestReference,
    MerchantAccount,
    ProductId,
    ProviderName,
    PspAccount,
    TokenId,
    plain_uuid,
)
from domain.pagination import Page, PageRequest
from domain.products.product import Product, Products
from domain.psps.hosted_page import Evidence, PspGuest
from domain.psps.references import GuestReferences, MerchantIdentities
from domain.retries import MAX_BACKOFF, latest_due
from domain.sessions.limit import (
    COUNTED_FOR,
    CardLimit,
    CardsAtCenter,
    Counted,
    CountedPer,
    RefusedCard,
    RefusedCards,
)
from domain.sessions.session import (
    POLL_EVERY,
    CardSession,
    CardSessions,
    DueSession,
    EvidenceLog,
    IdempotencyKeys,
    SessionStatus,
)
from domain.storage import AlreadyStored
from domain.worker.heartbeat import WorkerHeartbeats

MAX_FORGOTTEN: Final = 1_000
"""How many old rows one call deletes at most, to keep units of work short."""

MAX_REFUSED_CARDS_LOOKED_AT: Final = 10_000
"""How many of the latest refused cards are counted by center."""

RecordId = TypeVar("RecordId", bound=str)

_CENTERS = Rows("centers", Center, key=("id",))
_GUESTS = Rows("guests", Guest, key=("id",))
_PRODUCTS = Rows("products", Product, key=("id",))
_CONFIGURATIONS = Rows(
    "payment_configurations", PaymentConfiguration, key=("center_id",), beside=("center_id",)
)
_SESSIONS = Rows("card_sessions", CardSession, key=("token_id",))
_REFUSED_CARDS = Rows("refused_cards", RefusedCard, key=("token_id", "attempt", "number"))
_COUNTED: Final = {
    Counted.SESSIONS: ("card_sessions", "created_at"),
    Counted.REFUSED_CARDS: ("refused_cards", "refused_at"),
}
"""The table of what a limit counts, and its time."""
_COUNTED_PER: Final = {
    # Written with NOT, so that SQLite searches the few of the guest and not the many of the center.
    CountedPer.GUEST: "guest_id = :guest_id AND NOT center_id <> :center_id",
    CountedPer.GUEST_EVERYWHERE: "guest_id = :guest_id",
    CountedPer.CALLER: "caller = :caller",
    CountedPer.CENTER: "center_id = :center_id",
}
_EVIDENCE = Rows(
    "evidence",
    Evidence,
    key=("token_id", "origin", "content_hash"),
    beside=("token_id", "content_hash"),
)
_ACCOUNTS = Rows("payment_accounts", PaymentAccount, key=("account_id",))
_DISCARDS = Rows("discards", Discard, key=("provider", "merchant_account", "token"))
_PUT_PRODUCT: Final = (
    f"INSERT INTO products ({_PRODUCTS.listed}, position) VALUES ({_PRODUCTS.parameters}, "
    "(SELECT coalesce(max(position), 0) + 1 FROM products WHERE center_id = :center_id)) "
    f"{_PRODUCTS.or_replace} WHERE products.center_id = excluded.center_id"
)
_ENDPOINTS = Rows("event_endpoints", EventEndpoint, key=("endpoint_id",))
_DELIVERIES = Rows(
    "event_deliveries",
    EventDelivery,
    key=("event_id", "endpoint_id"),
    beside=("event_id", "occurred_at"),
)
_ACCESS_TOKENS = Rows("access_tokens", AccessToken, key=("token_hash",))


class _Repository:
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction
        self._dialect = transaction.dialect

    def _is_any(self, statement: str, values: Values) -> bool:
        return self._transaction.execute(statement, values).fetchone() is not None


class _Table(_Repository, Generic[Record]):
    """Records in a table of their own."""

    _rows: Rows[Record]

    def add(self, record: Record) -> None:
        """Store a new record. Raises AlreadyStored when a unique constraint refuses it."""
        added = self._transaction.execute(
            self._rows.insert + "ON CONFLICT DO NOTHING", self._row(record)
        )
        if added.rowcount == 0:
            raise AlreadyStored

    def update(self, record: Record) -> None:
        """Store a record that exists."""
        self._transaction.execute(self._rows.update, self._row(record))

    def _row(self, record: Record) -> dict[str, object]:
        return self._rows.row(record)

    def _page(
        self,
        condition: str,
        values: Values,
        *,
        order: str,
        request: PageRequest,
        find: Callable[[Transaction, str, Values], tuple[Record, ...]] | None = None,
    ) -> Page[Record]:
        """Return a page of the records that a condition selects; `find` replaces `_rows.find`."""
        (total,) = self._transaction.one(
            f"SELECT count(*) FROM {self._rows.table} {condition}", values
        )
        if request.before >= total:
            return Page(items=(), total=total, request=request)
        items = (find or self._rows.find)(
            self._transaction,
            f"{condition}ORDER BY {order} LIMIT :size OFFSET :before",
            {**values, "size": request.size, "before": request.before},
        )
        return Page(items=items, total=total, request=request)

    def _page_of_guest(
        self,
        condition: str,
        guest_id: GuestId,
        centers: frozenset[CenterId] | None,
        *,
        order: str,
        request: PageRequest,
    ) -> Page[Record]:
        """Return a page of a guest's records at these centers; None means all centers."""
        at_centers = "" if centers is None else f"AND center_id {self._dialect.among_centers} "
        return self._page(
            f"WHERE {condition} {at_centers}",
            {"guest_id": guest_id, "centers": sorted(centers or ())},
            order=order,
            request=request,
        )


class _ById(_Table[Record], Generic[RecordId, Record]):
    """Records that are found by their id; in a write unit, their row is locked if `_is_locked`."""

    _is_locked = False

    def get(self, record_id: RecordId) -> Record | None:
        """Return the record, or None."""
        key = {self._rows.key: record_id}
        return self._rows.get(self._transaction, lock=self._is_locked, **key)

    def put_many(self, records: Iterable[Record]) -> None:
        """Insert records, and update those that exist."""
        self._transaction.execute_many(
            self._rows.insert + self._rows.or_replace, map(self._rows.row, records)
        )


class SqlCenters(_ById[CenterId, Center], Centers):
    """The centers on file."""

    _rows = _CENTERS

    @override
    def page(self, centers: frozenset[CenterId] | None, request: PageRequest) -> Page[Center]:
        condition = "" if centers is None else f"WHERE id {self._dialect.among_centers} "
        values = {"centers": sorted(centers or ())}
        return self._page(condition, values, order="name, id", request=request)


class SqlGuests(_ById[GuestId, Guest], Guests):
    """The guests on file."""

    _rows = _GUESTS


class SqlProducts(_Repository, Products):
    """The products on file. Each keeps its first position within its center."""

    @override
    def get(self, product_id: ProductId) -> Product | None:
        return _PRODUCTS.find_one(self._transaction, "WHERE id = :id", {"id": product_id})

    @override
    def page(self, center_id: CenterId, request: PageRequest) -> Page[Product]:
        (total,) = self._transaction.one(
            "SELECT coalesce(max(position), 0) FROM products WHERE center_id = :center_id",
            {"center_id": center_id},
        )
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
        listed = list(products)
        for center_id in sorted({product.center_id for product in listed}):
            self._transaction.lock("products", center_id)
        stored = self._transaction.execute_many(_PUT_PRODUCT, map(_PRODUCTS.row, listed))
        if stored < len(listed):
            raise AlreadyStored


class SqlPaymentConfigurations(_Repository, PaymentConfigurations):
    """The payment configuration of each center."""

    @override
    def get(self, center_id: CenterId) -> PaymentConfiguration | None:
        return _CONFIGURATIONS.get(self._transaction, center_id=center_id)

    @override
    def put(self, center_id: CenterId, configuration: PaymentConfiguration) -> None:
        self._transaction.execute(
            _CONFIGURATIONS.insert + _CONFIGURATIONS.or_replace,
            _CONFIGURATIONS.row(configuration) | {"center_id": center_id},
        )

    @override
    def remove(self, center_id: CenterId) -> None:
        _CONFIGURATIONS.delete(self._transaction, center_id=center_id)

    @override
    def all(self) -> Sequence[PaymentConfiguration]:
        return _CONFIGURATIONS.find_readable(self._transaction, "", {})


class _Queue(NamedTuple):
    """A queue with due rows: what they call, their kind, and from when to when they are due."""

    target: str
    kind: str
    since: Any
    last: Any


class _Queues(_Table[Record]):
    """Rows with a `due_at`, in queues named `target/kind`.

    `_name` is the queue of a row as its index has it, before `due_at`. `_latest` is when a row of a
    `queue` can be due at the latest. Only the ends of queues are read, however long they are.
    """

    _name: str
    _latest: str

    def _due(self, now: datetime, except_to: Collection[str]) -> list[_Queue]:
        """Return the queues with a due row by name, except for those to some targets."""
        first = f"SELECT due_at FROM {self._rows.table} WHERE {self._name} = queue AND due_at"
        found = self._transaction.execute(
            "WITH RECURSIVE queues (queue) AS (SELECT '' UNION ALL SELECT ("
            f"SELECT {self._name} FROM {self._rows.table} WHERE due_at IS NOT NULL "
            f"AND {self._name} > queue ORDER BY {self._name} LIMIT 1) "
            f"FROM queues WHERE queue IS NOT NULL) SELECT queue, ({first} <= :now ORDER BY due_at "
            f"LIMIT 1), ({first} > {self._latest} ORDER BY due_at LIMIT 1) FROM queues",
            {
                "now": now,
                "silent": latest_due(now, longest_wait=MAX_BACKOFF),
                "opened": latest_due(now, longest_wait=POLL_EVERY),
                "undelivered": latest_due(now, longest_wait=LONGEST_WAIT),
            },
        )
        queues = [
            _Queue(*name.rsplit("/", 1), *((due, now) if due else (ahead, ahead)))
            for name, due, ahead in found.fetchall()
            if due or ahead
        ]
        return [each for each in queues if each.target not in except_to]

    def _take(self, queues: Iterable[_Queue], returning: str, until: datetime) -> Any:
        """Lease the first due row of these queues, and return its columns, or None."""
        for each in queues:
            taken = self._transaction.execute(
                f"UPDATE {self._rows.table} SET due_at = :until WHERE ({self._rows.key}) = ("
                f"SELECT {self._rows.key} FROM {self._rows.table} WHERE {self._name} = :queue "
                "AND due_at >= :since AND due_at <= :last ORDER BY due_at LIMIT 1"
                f"{self._dialect.skip_locked}) RETURNING {returning}",
                {**each._asdict(), "queue": f"{each.target}/{each.kind}", "until": until},
            ).fetchone()
            # There is none if another transaction has locked it meanwhile.
            if taken is not None:
                return taken
        return None


class _QueuesAtPsps(_Queues[Record]):
    """Work at merchant accounts, whose queues take turns."""

    def is_any_due(self, now: datetime, *, except_at: Collection[PspAccount] = ()) -> bool:
        """Return whether there is any work, except at some merchant accounts."""
        return bool(self._in_turn(now, except_at))

    def _in_turn(self, now: datetime, except_at: Collection[PspAccount]) -> list[_Queue]:
        queues = self._due(now, {"/".join(each) for each in except_at})
        turn = now.microsecond % (len(queues) or 1)
        return queues[turn:] + queues[:turn]


class SqlCardSessions(_QueuesAtPsps[CardSession], CardSessions):
    """Card-addition sessions."""

    _rows = _SESSIONS
    # A configuration that cannot be decoded may lack the names.
    _name = (
        "(coalesce(configuration ->> 'provider', '') || '/' || "
        "coalesce(configuration ->> 'merchant_account', '') || "
        "CASE WHEN unanswered_since IS NOT NULL THEN '/silent' "
        "WHEN attempt -> 'over' = 'false' OR due_at > expires_at THEN '/opened' ELSE '/link' END)"
    )
    _latest = (
        "CASE substr(queue, length(queue) - 6) "
        "WHEN '/silent' THEN :silent WHEN '/opened' THEN :opened END"
    )

    @override
    def get(self, token_id: TokenId) -> CardSession | None:
        if plain_uuid(token_id) is None:
            # An event of a PSP may name anything, and PostgreSQL's column takes only UUIDs.
            return None
        return _SESSIONS.get(self._transaction, lock=True, token_id=token_id)

    @override
    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        return _SESSIONS.find_one(
            self._transaction,
            f"WHERE {self._dialect.page_reference} = :page_reference "
            "AND configuration ->> 'provider' = :provider "
            "AND configuration ->> 'merchant_account' = :merchant_account"
            + self._transaction.for_update,
            {
                "provider": provider,
                "merchant_account": merchant_account,
                "page_reference": page_reference,
            },
        )

    @override
    def make_pages_due(self, guest_id: GuestId, now: datetime) -> None:
        is_open = (
            f"status = '{SessionStatus.OPEN}' AND {self._dialect.page_reference} IS NOT NULL "
            "AND attempt -> 'over' = 'false'"
        )
        found = self._transaction.execute(
            f"SELECT token_id FROM card_sessions WHERE guest_id = :guest_id AND {is_open}",
            {"guest_id": guest_id},
        )
        self._transaction.execute_many(
            f"UPDATE card_sessions SET due_at = :now WHERE token_id = :token_id AND {is_open}",
            [{"token_id": token_id, "now": now} for (token_id,) in sorted(found.fetchall())],
        )

    @override
    def open_of(self, caller: CallerName) -> Sequence[TokenId]:
        # All open sessions are in a queue, and they are few. Written with NOT, so that SQLite
        # searches these, and not whatever the caller ever had.
        found = self._transaction.execute(
            f"SELECT token_id FROM card_sessions WHERE due_at IS NOT NULL AND {self._name} > '' "
            "AND NOT caller <> :caller AND status = :open AND cancelled_at IS NULL",
            {"caller": caller, "open": SessionStatus.OPEN},
        )
        return [token_id for (token_id,) in found.fetchall()]

    @override
    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[CardSession]:
        return self._page_of_guest(
            "guest_id = :guest_id",
            guest_id,
            centers,
            order="created_at DESC, token_id DESC",
            request=request,
        )

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> DueSession | None:
        taken = self._take(
            self._in_turn(now, except_at),
            "token_id, coalesce(configuration ->> 'provider', ''), "
            "coalesce(configuration ->> 'merchant_account', '')",
            until,
        )
        return taken and DueSession(taken[0], PspAccount(*taken[1:]))


class SqlRefusedCards(_Repository, RefusedCards):
    """Cards that were refused, and the limits on them and on sessions."""

    @override
    def add(self, cards: Iterable[RefusedCard]) -> int:
        return self._transaction.execute_many(
            _REFUSED_CARDS.insert + "ON CONFLICT DO NOTHING", map(_REFUSED_CARDS.row, cards)
        )

    @override
    def reached(
        self, limits: Sequence[CardLimit], session: CardSession, *, since: datetime
    ) -> Mapping[CardLimit, datetime]:
        self._transaction.lock("card limits", session.guest_id)
        # One statement, because on PostgreSQL each costs a round trip.
        full_since = self._transaction.one(
            f"SELECT {', '.join(map(_nth_latest, limits))}",
            {
                "guest_id": session.guest_id,
                "caller": session.caller,
                "center_id": session.center_id,
                "since": since,
                "until": since + COUNTED_FOR,
            },
        )
        return {
            limit: msgspec.convert(time, datetime)
            for limit, time in zip(limits, full_since, strict=True)
            if time is not None
        }

    @override
    def at_centers(self, *, since: datetime, at_least: int) -> Sequence[CardsAtCenter]:
        refused = self._transaction.execute(
            "SELECT center_id FROM refused_cards WHERE refused_at > :since "
            "ORDER BY refused_at DESC LIMIT :limit",
            {"since": since, "limit": MAX_REFUSED_CARDS_LOOKED_AT},
        ).fetchall()
        return [
            CardsAtCenter(
                center_id=CenterId(center_id),
                sessions=self._sessions_at(center_id, since),
                refused_cards=cards,
            )
            for (center_id,), cards in Counter(refused).items()
            if cards >= at_least
        ]

    def _sessions_at(self, center_id: CenterId, since: datetime) -> int:
        (sessions,) = self._transaction.one(
            "SELECT count(*) FROM card_sessions "
            "WHERE center_id = :center_id AND created_at > :since",
            {"center_id": center_id, "since": since},
        )
        return int(sessions)


def _nth_latest(limit: CardLimit) -> str:
    """Return the query for the time from which on a limit is full, or NULL."""
    table, time = _COUNTED[limit.counted]
    return (
        f"(SELECT {time} FROM {table} WHERE {_COUNTED_PER[limit.per]} "
        f"AND {time} > :since AND {time} <= :until ORDER BY {time} DESC LIMIT 1 OFFSET {limit.at_most - 1})"
    )


class SqlEvidenceLog(_Repository, EvidenceLog):
    """What PSPs sent about sessions by webhook or browser."""

    @override
    def add(self, token_id: TokenId, evidence: Evidence, *, at_most: int) -> None:
        self._transaction.lock("evidence", token_id)
        (kept,) = self._transaction.one(
            "SELECT count(*) FROM evidence WHERE token_id = :token_id AND origin = :origin",
            {"token_id": token_id, "origin": evidence.origin},
        )
        if kept < at_most:
            content_hash = sha256(evidence.content.encode()).hexdigest()
            self._transaction.execute(
                _EVIDENCE.insert + "ON CONFLICT DO NOTHING",
                _EVIDENCE.row(evidence) | {"token_id": token_id, "content_hash": content_hash},
            )

    @override
    def of(self, token_id: TokenId) -> Sequence[Evidence]:
        return _EVIDENCE.find(
            self._transaction,
            f"WHERE token_id = :token_id ORDER BY received_at, {self._dialect.order_of_creation}",
            {"token_id": token_id},
        )


class SqlIdempotencyKeys(_Repository, IdempotencyKeys):
    """The session that each caller's Idempotency-Key belongs to."""

    @override
    def get(self, caller: CallerName, key: str, *, since: datetime) -> TokenId | None:
        row = self._transaction.execute(
            "SELECT token_id FROM idempotency_keys "
            "WHERE caller = :caller AND key = :key AND used_at > :since",
            {"caller": caller, "key": key, "since": since},
        ).fetchone()
        return None if row is None else TokenId(row[0])

    @override
    def claim(
        self, caller: CallerName, key: str, token_id: TokenId, *, now: datetime, since: datetime
    ) -> TokenId:
        # This waits for an uncommitted claim of the same key, and locks the row either way.
        self._transaction.execute(
            "INSERT INTO idempotency_keys AS kept (caller, key, token_id, used_at) "
            "VALUES (:caller, :key, :token_id, :now) "
            "ON CONFLICT (caller, key) DO UPDATE "
            "SET token_id = excluded.token_id, used_at = excluded.used_at "
            "WHERE kept.used_at <= :since",
            {"caller": caller, "key": key, "token_id": token_id, "now": now, "since": since},
        )
        (current,) = self._transaction.one(
            "SELECT token_id FROM idempotency_keys WHERE caller = :caller AND key = :key",
            {"caller": caller, "key": key},
        )
        return TokenId(current)

    @override
    def forget(self, *, before: datetime) -> int:
        forgotten = self._transaction.execute(
            "DELETE FROM idempotency_keys WHERE (caller, key) IN ("
            "SELECT caller, key FROM idempotency_keys WHERE used_at < :before "
            f"ORDER BY used_at LIMIT :limit{self._dialect.skip_locked})",
            {"before": before, "limit": MAX_FORGOTTEN},
        )
        return forgotten.rowcount


class SqlPaymentAccounts(_ById[AccountId, PaymentAccount], PaymentAccounts):
    """Cards on file."""

    _rows = _ACCOUNTS
    _is_locked = True
    _expiry_notice_due = "WHERE expiry_notice_at <= :now ORDER BY expiry_notice_at LIMIT :at_most"

    @override
    def active_at(self, guest_id: GuestId, center_id: CenterId) -> Sequence[PaymentAccount]:
        # Per guest, not per center: a guest's accounts get their sequence in the order of commit.
        self._transaction.lock("accounts", guest_id)
        return _ACCOUNTS.find(
            self._transaction,
            "WHERE guest_id = :guest_id AND center_id = :center_id AND removed_at IS NULL "
            "ORDER BY sequence" + self._transaction.for_update,
            {"guest_id": guest_id, "center_id": center_id},
        )

    @override
    def is_held(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> bool:
        self._transaction.lock("token", provider, merchant_account, token)
        return self._is_any(
            "SELECT 1 FROM payment_accounts WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND token = :token "
            "AND removed_at IS NULL LIMIT 1",
            {"provider": provider, "merchant_account": merchant_account, "token": token},
        )

    @override
    def page(
        self, guest_id: GuestId, centers: frozenset[CenterId] | None, request: PageRequest
    ) -> Page[PaymentAccount]:
        return self._page_of_guest(
            "guest_id = :guest_id AND removed_at IS NULL",
            guest_id,
            centers,
            order="sequence",
            request=request,
        )

    @override
    def is_expiry_notice_due(self, now: datetime) -> bool:
        return self._is_any(
            f"SELECT 1 FROM payment_accounts {self._expiry_notice_due}", {"now": now, "at_most": 1}
        )

    @override
    def with_expiry_notice_due(
        self, now: datetime, *, at_most: int, unreadable_until: datetime
    ) -> Sequence[PaymentAccount | None]:
        rows = self._transaction.execute(
            _ACCOUNTS.select + self._expiry_notice_due + self._dialect.skip_locked,
            {"now": now, "at_most": at_most},
        ).fetchall()
        accounts = [_ACCOUNTS.record_or_none(row) for row in rows]
        for row, account in zip(rows, accounts, strict=True):
            if account is None:
                self._transaction.execute(
                    "UPDATE payment_accounts SET expiry_notice_at = :until "
                    "WHERE account_id = :account_id",
                    {**_ACCOUNTS.key_of(row), "until": unreadable_until},
                )
        return accounts

    @override
    def page_expiring(
        self, center_id: CenterId, *, before: date, request: PageRequest
    ) -> Page[PaymentAccount]:
        # The last day of a month is before a date if the month is before the date's month.
        return self._page(
            "WHERE center_id = :center_id AND removed_at IS NULL "
            "AND (expiry_year, expiry_month) < (:year, :month) ",
            {"center_id": center_id, "year": before.year, "month": before.month},
            order="expiry_year, expiry_month, sequence",
            request=request,
            # It serves all guests of a center.
            find=_ACCOUNTS.find_readable,
        )


class SqlGuestReferences(_Repository, GuestReferences):
    """The PSPs' own references for our guests."""

    @override
    def get(self, guest: PspGuest) -> GuestReference | None:
        row = self._transaction.execute(
            "SELECT reference FROM psp_guests WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND guest_id = :guest_id "
            "AND center_id = :center_id AND prefill = :prefill",
            guest._asdict(),
        ).fetchone()
        return None if row is None else GuestReference(row[0])

    @override
    def keep(self, guest: PspGuest, reference: GuestReference) -> None:
        self._transaction.execute(
            "INSERT INTO psp_guests "
            "(provider, merchant_account, guest_id, center_id, prefill, reference) VALUES "
            "(:provider, :merchant_account, :guest_id, :center_id, :prefill, :reference) "
            "ON CONFLICT (provider, merchant_account, guest_id, center_id, prefill) "
            "DO UPDATE SET reference = excluded.reference",
            {**guest._asdict(), "reference": reference},
        )


class SqlMerchantIdentities(_Repository, MerchantIdentities):
    """The identity at the PSP behind each merchant account's keys."""

    @override
    def get(self, provider: ProviderName, merchant_account: MerchantAccount) -> str | None:
        row = self._transaction.execute(
            "SELECT identity FROM merchant_identities WHERE provider = :provider "
            "AND merchant_account = :merchant_account",
            {"provider": provider, "merchant_account": merchant_account},
        ).fetchone()
        return None if row is None else str(row[0])

    @override
    def claim(
        self, provider: ProviderName, merchant_account: MerchantAccount, identity: str
    ) -> str:
        # This waits for an uncommitted claim of the same merchant account.
        self._transaction.execute(
            "INSERT INTO merchant_identities (provider, merchant_account, identity) "
            "VALUES (:provider, :merchant_account, :identity) ON CONFLICT DO NOTHING",
            {"provider": provider, "merchant_account": merchant_account, "identity": identity},
        )
        return self.get(provider, merchant_account) or identity


class SqlDiscards(_QueuesAtPsps[Discard], Discards):
    """Tokens to discard at their PSP, and those that have been discarded."""

    _rows = _DISCARDS
    _name = "(provider || '/' || merchant_account || '/')"
    _latest = ":silent"

    @override
    def add(self, discard: Discard) -> None:
        self._transaction.execute(
            _DISCARDS.insert + "ON CONFLICT DO NOTHING", _DISCARDS.row(discard)
        )

    @override
    def get(
        self, provider: ProviderName, merchant_account: MerchantAccount, token: CardToken
    ) -> Discard | None:
        self._transaction.lock("token", provider, merchant_account, token)
        return _DISCARDS.get(
            self._transaction,
            lock=True,
            provider=provider,
            merchant_account=merchant_account,
            token=token,
        )

    @override
    def remove(self, discard: Discard) -> None:
        _DISCARDS.delete(
            self._transaction,
            provider=discard.provider,
            merchant_account=discard.merchant_account,
            token=discard.token,
        )

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_at: Collection[PspAccount] = ()
    ) -> Discard | None:
        queues = self._in_turn(now, except_at)
        while taken := self._take(queues, _DISCARDS.listed, until):
            if discard := _DISCARDS.record_or_none(taken):
                return discard
        return None


class SqlEventEndpoints(_ById[EndpointId, EventEndpoint], EventEndpoints):
    """The endpoints that take events."""

    _rows = _ENDPOINTS
    _is_locked = True

    @override
    def all(self) -> Sequence[EventEndpoint]:
        return _ENDPOINTS.find_readable(
            self._transaction,
            "WHERE removed_at IS NULL ORDER BY created_at, endpoint_id",
            {},
        )


class SqlEventDeliveries(_Queues[EventDelivery], EventDeliveries):
    """The deliveries of events."""

    _rows = _DELIVERIES
    _name = (
        "(endpoint_id || CASE WHEN event ->> 'type' = 'account.expiring' THEN '/1' ELSE '/0' END)"
    )
    _latest = ":undelivered"

    @override
    def _row(self, delivery: EventDelivery) -> dict[str, object]:
        event = delivery.event
        return super()._row(delivery) | {
            "event_id": event.event_id,
            "occurred_at": event.occurred_at,
        }

    @override
    def get(self, event_id: EventId, endpoint_id: EndpointId) -> EventDelivery | None:
        return _DELIVERIES.get(
            self._transaction, lock=True, event_id=event_id, endpoint_id=endpoint_id
        )

    @override
    def of(self, event_id: EventId) -> Sequence[EventDelivery]:
        return _DELIVERIES.find(
            self._transaction,
            "WHERE event_id = :event_id ORDER BY endpoint_id" + self._transaction.for_update,
            {"event_id": event_id},
        )

    @override
    def latest(self, *, limit: int, only_failed: bool) -> Sequence[EventDelivery]:
        condition = "WHERE status = 'failed' " if only_failed else ""
        return _DELIVERIES.find_readable(
            self._transaction,
            f"{condition}ORDER BY occurred_at DESC, event_id DESC, endpoint_id DESC LIMIT :limit",
            {"limit": limit},
        )

    @override
    def is_any_due(self, now: datetime, *, except_to: Collection[EndpointId] = ()) -> bool:
        return bool(self._due(now, except_to))

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_to: Collection[EndpointId] = ()
    ) -> DueDelivery | None:
        queues = sorted(
            self._due(now, except_to), key=lambda each: (each.kind, each.since, each.target)
        )
        taken = self._take(queues, self._rows.key, until)
        return taken and DueDelivery(taken[0], taken[1], until)

    @override
    def forget(self, *, before: datetime) -> int:
        forgotten = self._transaction.execute(
            "DELETE FROM event_deliveries WHERE (event_id, endpoint_id) IN ("
            "SELECT event_id, endpoint_id FROM event_deliveries WHERE occurred_at < :before "
            f"AND due_at IS NULL ORDER BY occurred_at LIMIT :limit{self._dialect.skip_locked})",
            {"before": before, "limit": MAX_FORGOTTEN},
        )
        return forgotten.rowcount


class SqlAccessTokens(_ById[str, AccessToken], AccessTokens):
    """Issued access tokens, by hash."""

    _rows = _ACCESS_TOKENS

    @override
    def all(self) -> Sequence[AccessToken]:
        order = f"ORDER BY issued_at, {self._dialect.order_of_creation}"
        return _ACCESS_TOKENS.find_readable(self._transaction, order, {})


class SqlWorkerHeartbeats(_Repository, WorkerHeartbeats):
    """The last heartbeat of any worker, in one row."""

    @override
    def last(self) -> datetime | None:
        row = self._transaction.execute("SELECT left_at FROM worker_heartbeats").fetchone()
        return None if row is None else msgspec.convert(row[0], datetime)

    @override
    def leave(self, now: datetime) -> None:
        self._transaction.execute(
            "INSERT INTO worker_heartbeats (id, left_at) VALUES (1, :now) "
            "ON CONFLICT (id) DO UPDATE SET left_at = excluded.left_at",
            {"now": now},
        )
