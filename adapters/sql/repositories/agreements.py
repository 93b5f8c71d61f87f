"""The texts about bookings, and the agreements of guests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

import msgspec
from typing_extensions import override

from adapters.sql.repositories.repository import (
    EVENTS_ARE_EVIDENCE,
    MAX_FORGOTTEN,
    ById,
    Repository,
)
from adapters.sql.rows import Rows
from domain.agreements.agreement import Agreement, Agreements
from domain.agreements.reservation_text import ReservationText, ReservationTexts
from domain.identifiers import AccountId, AgreementId, CenterId, GuestId, TokenId
from domain.pagination import Page, PageRequest

_RESERVATION_TEXTS = Rows(
    "center_reservation_texts",
    ReservationText,
    key=("center_id", "language"),
    extra_columns=("center_id",),
)


_AGREEMENTS = Rows("agreements", Agreement, key=("agreement_id",))
_OLDEST_FIRST = "agreed_at, agreement_id"
_MADE_WITH = (
    "SELECT agreement_id FROM agreements WHERE account_id = {account_id} UNION ALL "
    "SELECT agreement_id FROM agreements JOIN card_sessions USING (token_id) "
    "WHERE card_sessions.account_id = {account_id}"
)
"""Finds the agreements of an account. Agreements that were made with the account, but have moved to
another account, are found too.
"""


class SqlReservationTexts(Repository, ReservationTexts):
    """Stores the texts about bookings of each center."""

    @override
    def of(self, center_id: CenterId) -> Sequence[ReservationText]:
        values = {"center_id": center_id}
        condition = "WHERE center_id = :center_id ORDER BY language"
        return _RESERVATION_TEXTS.find(self._transaction, condition, values)

    @override
    def put(self, center_id: CenterId, text: ReservationText) -> None:
        self._transaction.execute(
            _RESERVATION_TEXTS.insert + _RESERVATION_TEXTS.or_replace,
            _RESERVATION_TEXTS.row(text) | {"center_id": center_id},
        )

    @override
    def remove(self, center_id: CenterId, language: str) -> None:
        _RESERVATION_TEXTS.delete(self._transaction, center_id=center_id, language=language)


class SqlAgreements(ById[AgreementId, Agreement], Agreements):
    """Stores agreements, and the references of bookings."""

    _rows = _AGREEMENTS

    @override
    def add(self, agreement: Agreement) -> None:
        super().add(agreement)
        self._note_evidence([agreement.token_id], [agreement.account_id])

    @override
    def of_account(self, account_id: AccountId) -> Sequence[Agreement]:
        return _AGREEMENTS.find(
            self._transaction,
            f"WHERE account_id = :account_id ORDER BY {_OLDEST_FIRST}",
            {"account_id": account_id},
        )

    @override
    def made_with(self, account_id: AccountId) -> Sequence[Agreement]:
        condition = f"WHERE agreement_id IN ({_MADE_WITH.format(account_id=':account_id')})"
        found = _AGREEMENTS.find(self._transaction, condition, {"account_id": account_id})
        # The rows are sorted here. With ORDER BY, SQLite would look up each row in the order of an
        # index.
        return sorted(found, key=lambda each: (each.agreed_at, each.agreement_id))

    @override
    def page(self, account_id: AccountId, request: PageRequest) -> Page[Agreement]:
        return self._page(
            "WHERE account_id = :account_id ",
            {"account_id": account_id},
            order=_OLDEST_FIRST,
            request=request,
        )

    @override
    def move(self, of: AccountId, to: AccountId) -> None:
        self._transaction.execute(
            "UPDATE agreements SET account_id = :to WHERE account_id = :of", {"of": of, "to": to}
        )
        self._note_evidence([], [to])

    @override
    def reassign(self, merged: GuestId, remaining: GuestId) -> None:
        self._reassign("agreements", merged, remaining)
        values = {"merged": merged, "remaining": remaining}
        self._transaction.execute(
            "INSERT INTO agreement_references SELECT :remaining, center_id, reference, token_id "
            "FROM agreement_references WHERE guest_id = :merged ON CONFLICT DO NOTHING",
            values,
        )
        self.remove_references(merged)

    @override
    def remove_references(self, guest_id: GuestId) -> None:
        self._transaction.execute(
            "DELETE FROM agreement_references WHERE guest_id = :guest_id", {"guest_id": guest_id}
        )

    @override
    def blank_unreadable(self, guest_id: GuestId, now: datetime) -> None:
        of_guest = "WHERE guest_id = :guest_id", {"guest_id": guest_id}
        for key in _AGREEMENTS.unreadable(self._transaction, *of_guest):
            (stored,) = self._transaction.one(
                "SELECT CAST(terms AS text) FROM agreements WHERE agreement_id = :agreement_id", key
            )
            terms = msgspec.json.decode(stored, type=dict[str, object]) | {"reference": ""}
            self._transaction.execute(
                "UPDATE agreements SET terms = :terms, due_at = NULL, "
                "ended_at = coalesce(ended_at, :now) WHERE agreement_id = :agreement_id",
                {**key, "terms": msgspec.json.encode(terms).decode(), "now": now},
            )

    @override
    def due(self, now: datetime, *, at_most: int, skip: int = 0) -> Sequence[Agreement | None]:
        return _AGREEMENTS.find_or_none(
            self._transaction,
            "WHERE due_at <= :now ORDER BY due_at LIMIT :at_most OFFSET :skip",
            {"now": now, "at_most": at_most, "skip": skip},
        )

    @override
    def session_of(self, guest_id: GuestId, center_id: CenterId, reference: str) -> TokenId | None:
        self._transaction.lock("agreement", guest_id, center_id, reference)
        row = self._transaction.execute(
            "SELECT token_id FROM agreement_references WHERE guest_id = :guest_id "
            "AND center_id = :center_id AND reference = :reference",
            {"guest_id": guest_id, "center_id": center_id, "reference": reference},
        ).fetchone()
        return None if row is None else TokenId(row[0])

    @override
    def name_session(
        self, guest_id: GuestId, center_id: CenterId, reference: str, token_id: TokenId
    ) -> None:
        self._transaction.execute(
            "INSERT INTO agreement_references (guest_id, center_id, reference, token_id) "
            "VALUES (:guest_id, :center_id, :reference, :token_id) "
            "ON CONFLICT (guest_id, center_id, reference) "
            "DO UPDATE SET token_id = excluded.token_id",
            {
                "guest_id": guest_id,
                "center_id": center_id,
                "reference": reference,
                "token_id": token_id,
            },
        )

    @override
    def of_guest(self, guest_id: GuestId) -> Sequence[Agreement]:
        return _AGREEMENTS.find_readable(
            self._transaction,
            f"WHERE guest_id = :guest_id ORDER BY {_OLDEST_FIRST}",
            {"guest_id": guest_id},
        )

    @override
    def forget(self, *, before: datetime) -> int:
        condition = "kept_until < :before AND due_at IS NULL ORDER BY kept_until"
        old = self._transaction.execute(
            self._old("agreements", "agreement_id", condition),
            {"before": before, "limit": MAX_FORGOTTEN},
        ).fetchall()
        if not old:
            return 0
        among = self._dialect.among_ids
        ids = {"ids": [agreement_id for (agreement_id,) in old]}
        made_with = self._transaction.execute(
            f"SELECT account_id FROM agreements WHERE agreement_id {among} UNION ALL "
            "SELECT card_sessions.account_id FROM agreements JOIN card_sessions USING (token_id) "
            f"WHERE agreement_id {among}",
            ids,
        ).fetchall()
        accounts = sorted({account_id for (account_id,) in made_with} - {None})
        # A unit that adds an agreement of an account, or an event about it, takes the same lock.
        # Without the lock, the two units would not see each other's changes.
        self._transaction.execute(
            f"SELECT 1 FROM payment_accounts WHERE account_id {among}"
            + self._transaction.for_update,
            {"ids": accounts},
        )
        consents = self._transaction.execute(
            "DELETE FROM consents WHERE (account_id, token_id) IN ("
            "SELECT given.account_id, given.token_id FROM agreements "
            "JOIN consents AS given ON given.token_id = agreements.token_id "
            f"JOIN consent_texts USING (text_id) WHERE agreement_id {among} "
            "AND text = shown ->> 'text') RETURNING text_id",
            ids,
        ).fetchall()
        self._transaction.execute_many(
            "DELETE FROM consent_texts WHERE text_id = :text_id "
            "AND NOT EXISTS (SELECT 1 FROM consents WHERE text_id = :text_id)",
            [{"text_id": text_id} for (text_id,) in consents],
        )
        sessions = self._transaction.execute(
            f"DELETE FROM agreements WHERE agreement_id {among} RETURNING token_id", ids
        ).fetchall()
        self._note_evidence([token_id for (token_id,) in sessions], accounts)
        return len(old)

    def _note_evidence(self, token_ids: Iterable[str], account_ids: Iterable[str]) -> None:
        """Update the columns that say whether an agreement needs these sessions and accounts.

        The events of the sessions are updated too. With these columns, the worker finds old records
        to delete without reading those that it must keep.
        """
        sessions = [{"token_id": each, "in_event": each} for each in token_ids]
        self._transaction.execute_many(
            "UPDATE card_sessions SET is_evidence = EXISTS ("
            "SELECT 1 FROM agreements WHERE token_id = :token_id) WHERE token_id = :token_id",
            sessions,
        )
        self._transaction.execute_many(
            f"UPDATE event_deliveries SET is_evidence = {EVENTS_ARE_EVIDENCE} "
            "WHERE event ->> 'token_id' = :in_event",
            sessions,
        )
        made_with = _MADE_WITH.format(account_id=":account_id")
        self._transaction.execute_many(
            f"UPDATE payment_accounts SET is_evidence = EXISTS ({made_with}) "
            "WHERE account_id = :account_id",
            [{"account_id": each} for each in account_ids],
        )
