"""Card-addition sessions, their pages, evidence and idempotency keys, and refused cards."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from hashlib import sha256
from typing import Final

import msgspec
from typing_extensions import override

from adapters.sql.repositories.queues import QueuesAtPsps
from adapters.sql.repositories.repository import (
    MAX_FORGOTTEN,
    Repository,
    assignments,
    where,
)
from adapters.sql.rows import Rows
from adapters.sql.transaction import Values
from domain.centers.card_limit import CardLimit, Counted, CountedPer
from domain.identifiers import (
    CallerName,
    CenterId,
    GuestId,
    LinkKey,
    MerchantAccount,
    ProviderName,
    PspAccount,
    TokenId,
    plain_uuid,
)
from domain.pagination import Page, PageRequest
from domain.psps.evidence import Evidence
from domain.sessions.earlier_page import EarlierPage, EarlierPages
from domain.sessions.end import SessionStatus
from domain.sessions.refused_card import COUNTED_FOR, CardsAtCenter, RefusedCard, RefusedCards
from domain.sessions.result import CountedBy, CountedResult, SessionResult
from domain.sessions.session import (
    CLEARED_BY_ERASURE,
    CLEARED_WHEN_OVER,
    CardSession,
    CardSessions,
    DueSession,
    EvidenceLog,
    IdempotencyKeys,
    SessionFilter,
)

MAX_REFUSED_CARDS_EXAMINED: Final = 10_000
"""The maximum number of refused cards that are counted by center. If there are more, only the
latest are counted.
"""

_SESSIONS = Rows("card_sessions", CardSession, key=("token_id",))
_REFUSED_CARDS = Rows("refused_cards", RefusedCard, key=("token_id", "attempt", "number"))

_COUNTED: Final = {
    Counted.SESSIONS: ("card_sessions", "created_at"),
    Counted.REFUSED_CARDS: ("refused_cards", "refused_at"),
}
"""For each kind of limit, the table of the counted entries, and the column with their time."""

_COUNTED_PER: Final = {
    # The condition is written with NOT, so that SQLite searches the few rows of the guest
    # instead of the many rows of the center.
    CountedPer.GUEST: "guest_id = :guest_id AND NOT center_id <> :center_id",
    CountedPer.GUEST_EVERYWHERE: "guest_id = :guest_id",
    CountedPer.CALLER: "caller = :caller",
    CountedPer.CENTER: "center_id = :center_id",
}

_AT_ANY_CENTER: Final = (
    # The centers are searched one after the other, because the index of the times begins with the
    # center.
    "center_id IN (WITH RECURSIVE centers_of_sessions (id) AS ("
    "SELECT (SELECT center_id FROM card_sessions ORDER BY center_id LIMIT 1) UNION ALL "
    "SELECT (SELECT center_id FROM card_sessions WHERE center_id > id ORDER BY center_id LIMIT 1) "
    "FROM centers_of_sessions WHERE id IS NOT NULL) "
    "SELECT id FROM centers_of_sessions WHERE id IS NOT NULL)"
)

_ACCOUNT: Final = (
    # If the configuration cannot be decoded, these values may be missing.
    "coalesce(configuration ->> 'provider', '') || '/' || "
    "coalesce(configuration ->> 'merchant_account', '')"
)

_GROUPS: Final[Mapping[CountedBy | None, str]] = {
    None: "''",
    CountedBy.CENTER: "center_id",
    CountedBy.MERCHANT: _ACCOUNT,
}

_RESULT: Final = f"""
    CASE
        WHEN status = '{SessionStatus.FAILED}' THEN '{SessionResult.REFUSED_BY_RULE}'
        WHEN status = '{SessionStatus.COMPLETED}' THEN CASE WHEN EXISTS (
            SELECT 1 FROM payment_accounts AS renewed
            WHERE renewed.account_id = card_sessions.account_id
            AND renewed.token_id <> card_sessions.token_id
        ) THEN CASE
            WHEN attempt IS NULL THEN '{SessionResult.CARD_ON_FILE_USED}'
            ELSE '{SessionResult.RENEWED}' END
        ELSE '{SessionResult.STORED}' END
        WHEN status = '{SessionStatus.OPEN}' THEN CASE
            WHEN unanswered_since IS NOT NULL THEN '{SessionResult.WAITING_FOR_PSP}'
            WHEN due_at < :overdue_before THEN '{SessionResult.OVERDUE}' ELSE '{SessionResult.OPEN}' END
        WHEN EXISTS (
            SELECT 1 FROM refused_cards AS refused
            WHERE refused.token_id = card_sessions.token_id AND refused.number > 0
        ) THEN '{SessionResult.DECLINED}'
        WHEN attempt IS NULL THEN '{SessionResult.NEVER_OPENED}' ELSE '{SessionResult.ABANDONED}'
    END
"""

_EARLIER_PAGES = Rows("earlier_pages", EarlierPage, key=("token_id", "number"))
_EVIDENCE = Rows(
    "evidence",
    Evidence,
    key=("token_id", "origin", "content_hash"),
    extra_columns=("token_id", "content_hash"),
)


class SqlCardSessions(QueuesAtPsps[CardSession], CardSessions):
    """Stores card-addition sessions."""

    _rows = _SESSIONS
    _account = _ACCOUNT
    _name = (
        f"({_ACCOUNT} || CASE WHEN unanswered_since IS NOT NULL THEN '/silent' "
        "WHEN attempt -> 'over' = 'false' OR due_at > expires_at THEN '/opened' ELSE '/link' END)"
    )
    _latest = (
        "CASE substr(queue, length(queue) - 6) "
        "WHEN '/silent' THEN :silent WHEN '/opened' THEN :opened END"
    )

    @override
    def get(self, token_id: TokenId) -> CardSession | None:
        if plain_uuid(token_id) is None:
            # A PSP's event may name anything, and PostgreSQL's column accepts only UUIDs.
            return None
        return _SESSIONS.get(self._transaction, lock=True, token_id=token_id)

    @override
    def with_link_key(self, link_key: LinkKey) -> CardSession | None:
        values = {"link_key": link_key}
        return _SESSIONS.find_one(self._transaction, "WHERE link_key = :link_key", values)

    @override
    def is_any_without_key(self, *, since: datetime, before: datetime) -> bool:
        # An erasure clears both the key and redirect_uri.
        return self._is_any(
            "SELECT 1 FROM card_sessions WHERE link_key IS NULL AND created_at > :since "
            "AND created_at < :before AND redirect_uri <> '' LIMIT 1",
            {"since": since, "before": before},
        )

    @override
    def with_page(
        self, provider: ProviderName, merchant_account: MerchantAccount, page_reference: str
    ) -> CardSession | None:
        page = {
            "provider": provider,
            "merchant_account": merchant_account,
            "page_reference": page_reference,
        }
        current = _SESSIONS.find_one(
            self._transaction,
            f"WHERE {self._dialect.page_reference} = :page_reference "
            "AND configuration ->> 'provider' = :provider "
            "AND configuration ->> 'merchant_account' = :merchant_account"
            + self._transaction.for_update,
            page,
        )
        return current or _SESSIONS.find_one(
            self._transaction,
            "WHERE token_id IN (SELECT token_id FROM earlier_pages WHERE provider = :provider "
            "AND merchant_account = :merchant_account AND page_reference = :page_reference)"
            + self._transaction.for_update,
            page,
        )

    @override
    def make_pages_due(
        self, guest_id: GuestId, now: datetime, *, except_for: TokenId | None = None
    ) -> None:
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
            [
                {"token_id": token_id, "now": now}
                for (token_id,) in sorted(found.fetchall())
                if token_id != except_for
            ],
        )

    @override
    def open_of(self, caller: CallerName) -> Sequence[TokenId]:
        # Only open sessions are in a queue, and they are few. The condition is written with NOT, so
        # that SQLite searches these sessions instead of every session that the caller ever had.
        found = self._transaction.execute(
            f"SELECT token_id FROM card_sessions WHERE due_at IS NOT NULL AND {self._name} > '' "
            "AND NOT caller <> :caller AND status = :open AND cancelled_at IS NULL",
            {"caller": caller, "open": SessionStatus.OPEN},
        )
        return [token_id for (token_id,) in found.fetchall()]

    @override
    def without_agreement(self, *, since: datetime) -> Sequence[TokenId]:
        found = self._transaction.execute(
            "SELECT token_id FROM card_sessions WHERE agreement IS NOT NULL AND ended_at > :since "
            "AND status = :completed AND NOT EXISTS (SELECT 1 FROM agreements "
            "WHERE guest_id = card_sessions.guest_id AND token_id = card_sessions.token_id) "
            "ORDER BY ended_at",
            {"since": since, "completed": SessionStatus.COMPLETED},
        )
        return [token_id for (token_id,) in found.fetchall()]

    @override
    def with_unopened_notice_due(
        self, now: datetime, *, at_most: int, skip: int
    ) -> Sequence[CardSession | None]:
        return _SESSIONS.find_or_none(
            self._transaction,
            "WHERE unopened_at <= :now AND ended_at IS NULL ORDER BY unopened_at, token_id "
            "LIMIT :at_most OFFSET :skip",
            {"now": now, "at_most": at_most, "skip": skip},
        )

    @override
    def due_at_psp(self, psp_account: PspAccount) -> Sequence[TokenId]:
        found = self._transaction.execute(
            "SELECT token_id FROM card_sessions "
            f"WHERE due_at IS NOT NULL AND {self._name} IN (:silent, :opened, :link)",
            {kind: f"{'/'.join(psp_account)}/{kind}" for kind in ("silent", "opened", "link")},
        )
        return [token_id for (token_id,) in found.fetchall()]

    @override
    def forget(self, *, before: datetime) -> int:
        # If the session is about an agreement, its consent was stored with the account, and may
        # have been deleted in the meantime.
        condition = (
            "NOT is_evidence AND ended_at < :before AND due_at IS NULL "
            "AND (account_id IS NULL OR agreement IS NOT NULL OR EXISTS ("
            "SELECT 1 FROM consents WHERE account_id = card_sessions.account_id "
            "AND token_id = card_sessions.token_id) OR NOT EXISTS ("
            "SELECT 1 FROM payment_accounts WHERE account_id = card_sessions.account_id)) "
            "ORDER BY ended_at"
        )
        also = (
            *("evidence", "earlier_pages", "refused_cards"),
            *("agreement_references", "desk_links"),
        )
        return self._forget("card_sessions", "token_id", condition, *also, before=before)

    @override
    def forget_browsers(self, *, before: datetime) -> int:
        old = "browsers IS NOT NULL AND ended_at < :before ORDER BY ended_at"
        forgotten = self._transaction.execute(
            "UPDATE card_sessions SET browsers = NULL "
            f"WHERE token_id IN ({self._old('card_sessions', 'token_id', old)})",
            {"before": before, "limit": MAX_FORGOTTEN},
        )
        return forgotten.rowcount

    @override
    def of_guest(self, guest_id: GuestId) -> Sequence[CardSession]:
        return _SESSIONS.find_readable(self._transaction, *self._of_guest(guest_id))

    @override
    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        self._reassign("card_sessions", merged, remaining)

    @override
    def blank_unreadable(self, guest_id: GuestId, now: datetime) -> bool:
        are_over = True
        for key in _SESSIONS.unreadable(self._transaction, *self._of_guest(guest_id)):
            (consent,) = self._transaction.one(
                f"UPDATE card_sessions SET {assignments(CLEARED_BY_ERASURE)} "
                "WHERE token_id = :token_id "
                "RETURNING CAST(attempt -> 'request' -> 'consent' AS text)",
                {**key, **CLEARED_BY_ERASURE},
            )
            ended = self._transaction.execute(
                f"UPDATE card_sessions SET {assignments(CLEARED_WHEN_OVER)}, attempt = :attempt, "
                "due_at = NULL, status = CASE status WHEN :open THEN :expired ELSE status END, "
                "ended_at = coalesce(ended_at, :now) "
                "WHERE token_id = :token_id AND (status <> :open OR expires_at <= :now)",
                {
                    **key,
                    **CLEARED_WHEN_OVER,
                    "attempt": consent and f'{{"request":{{"consent":{consent}}}}}',
                    "now": now,
                    "open": SessionStatus.OPEN,
                    "expired": SessionStatus.EXPIRED,
                },
            )
            if ended.rowcount:
                for table in ("evidence", "earlier_pages", "desk_links"):
                    self._transaction.execute(
                        f"DELETE FROM {table} WHERE token_id = :token_id", key
                    )
            are_over = are_over and ended.rowcount > 0
        return are_over

    def _of_guest(self, guest_id: GuestId) -> tuple[str, Values]:
        condition = "WHERE guest_id = :guest_id ORDER BY token_id" + self._transaction.for_update
        return condition, {"guest_id": guest_id}

    @override
    def page(
        self,
        guest_id: GuestId,
        centers: frozenset[CenterId] | None,
        request: PageRequest,
        *,
        status: SessionStatus | None = None,
        reference: str | None = None,
    ) -> Page[CardSession]:
        conditions = {
            "guest_id = :guest_id": guest_id,
            "status = :status": status,
            "reference = :reference": reference,
        }
        wanted = [condition for condition, value in conditions.items() if value is not None]
        return self._page_of_guest(
            " AND ".join(wanted),
            {"guest_id": guest_id, "status": status, "reference": reference},
            centers,
            order="created_at DESC, token_id DESC",
            request=request,
        )

    @override
    def between(self, first: str, last: str, *, limit: int) -> Sequence[CardSession]:
        return _SESSIONS.find(
            self._transaction,
            "WHERE token_id >= :first AND token_id <= :last ORDER BY token_id LIMIT :limit",
            {"first": first, "last": last, "limit": limit},
        )

    @override
    def search(self, wanted: SessionFilter, *, limit: int) -> Sequence[CardSession]:
        conditions = {
            "guest_id = :guest_id": wanted.guest_id,
            "center_id = :center_id": wanted.center_id,
            "status = :status": wanted.status,
            "created_at >= :created_since": wanted.created_since,
            _AT_ANY_CENTER: (wanted.guest_id is None and wanted.center_id is None) or None,
        }
        return _SESSIONS.find_readable(
            self._transaction,
            f"{where(conditions)}ORDER BY created_at DESC, token_id DESC LIMIT :limit",
            {**asdict(wanted), "limit": limit},
        )

    @override
    def count(
        self, by: CountedBy | None, *, since: datetime, overdue_before: datetime
    ) -> Sequence[CountedResult]:
        found = self._transaction.execute(
            f"SELECT {_GROUPS[by]}, {_RESULT}, "
            "coalesce(failure ->> 'type', failure ->> 'message'), count(*) FROM card_sessions "
            f"WHERE {_AT_ANY_CENTER} AND created_at >= :since "
            "GROUP BY 1, 2, 3 ORDER BY 1, 4 DESC, 2, 3",
            {"since": since, "overdue_before": overdue_before},
        )
        return [
            CountedResult(str(group), SessionResult(result), reason, sessions)
            for group, result, reason, sessions in found.fetchall()
        ]

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


class SqlRefusedCards(Repository, RefusedCards):
    """Stores refused cards. It also counts refused cards and sessions for the limits."""

    @override
    def add(self, cards: Iterable[RefusedCard]) -> int:
        return self._transaction.execute_many(
            _REFUSED_CARDS.insert_new, map(_REFUSED_CARDS.row, cards)
        )

    @override
    def of(self, token_id: TokenId) -> Sequence[RefusedCard]:
        return _REFUSED_CARDS.find(
            self._transaction,
            "WHERE token_id = :token_id ORDER BY attempt, number",
            {"token_id": token_id},
        )

    @override
    def of_guest(self, guest_id: GuestId) -> Sequence[RefusedCard]:
        return _REFUSED_CARDS.find(
            self._transaction,
            "WHERE guest_id = :guest_id ORDER BY refused_at",
            {"guest_id": guest_id},
        )

    @override
    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        self._reassign("refused_cards", merged, remaining)

    @override
    def reached(
        self, limits: Sequence[CardLimit], session: CardSession, *, since: datetime
    ) -> Mapping[CardLimit, datetime]:
        self._transaction.lock("card limits", session.guest_id)
        # All limits are read with one statement, because on PostgreSQL each statement costs a round
        # trip.
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
            {"since": since, "limit": MAX_REFUSED_CARDS_EXAMINED},
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
    """Return a subquery for the time of a limit's n-th latest session or refused card.

    The limit's `at_most` is n. If there are fewer than n, the time is NULL, and the limit is not
    reached.
    """
    table, time = _COUNTED[limit.counted]
    return (
        f"(SELECT {time} FROM {table} WHERE {_COUNTED_PER[limit.per]} "
        f"AND {time} > :since AND {time} <= :until ORDER BY {time} DESC LIMIT 1 OFFSET {limit.at_most - 1})"
    )


class SqlEarlierPages(Repository, EarlierPages):
    """Stores the earlier pages of sessions."""

    @override
    def keep(self, page: EarlierPage) -> None:
        self._transaction.execute(
            _EARLIER_PAGES.insert + _EARLIER_PAGES.or_replace, _EARLIER_PAGES.row(page)
        )

    @override
    def of(self, token_id: TokenId) -> Sequence[EarlierPage]:
        return _EARLIER_PAGES.find_readable(
            self._transaction,
            "WHERE token_id = :token_id ORDER BY number",
            {"token_id": token_id},
        )

    @override
    def remove(self, token_id: TokenId, number: int | None = None) -> None:
        self._transaction.execute(
            "DELETE FROM earlier_pages WHERE token_id = :token_id "
            "AND number = coalesce(:number, number)",
            {"token_id": token_id, "number": number},
        )


class SqlEvidenceLog(Repository, EvidenceLog):
    """Stores the evidence about sessions that arrived by webhook or with a browser's return."""

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
                _EVIDENCE.insert_new,
                _EVIDENCE.row(evidence) | {"token_id": token_id, "content_hash": content_hash},
            )

    @override
    def of(self, token_id: TokenId) -> Sequence[Evidence]:
        return _EVIDENCE.find(
            self._transaction,
            f"WHERE token_id = :token_id ORDER BY received_at, {self._dialect.order_of_creation}",
            {"token_id": token_id},
        )

    @override
    def remove(self, token_id: TokenId) -> None:
        self._transaction.execute(
            "DELETE FROM evidence WHERE token_id = :token_id", {"token_id": token_id}
        )


class SqlIdempotencyKeys(Repository, IdempotencyKeys):
    """Stores the idempotency keys of callers, each with the session to which it refers."""

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
        # This waits for an uncommitted claim of the same key, and locks the row in either case.
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
        condition = "used_at < :before ORDER BY used_at"
        return self._forget("idempotency_keys", "caller, key", condition, before=before)
