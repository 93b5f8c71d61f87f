"""The texts about bookings, and the agreements of guests."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

import msgspec
from typing_extensions import override

from adapters.sql.repositories.repository import ById, Repository
from adapters.sql.rows import Rows
from domain.agreements.agreement import Agreement, Agreements
from domain.agreements.reservation_text import ReservationText, ReservationTexts
from domain.identifiers import AccountId, AgreementId, CenterId, GuestId, TokenId
from domain.pagination import Page, PageRequest

_RESERVATION_TEXTS = Rows(
    "center_reservation_texts",
    ReservationText,
    key=("center_id", "language"),
    beside=("center_id",),
)


_AGREEMENTS = Rows("agreements", Agreement, key=("agreement_id",))
_OLDEST_FIRST = "agreed_at, agreement_id"


class SqlReservationTexts(Repository, ReservationTexts):
    """The texts about bookings of each center."""

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
    """The agreements of cards."""

    _rows = _AGREEMENTS

    @override
    def of_account(self, account_id: AccountId) -> Sequence[Agreement]:
        return _AGREEMENTS.find(
            self._transaction,
            f"WHERE account_id = :account_id ORDER BY {_OLDEST_FIRST}",
            {"account_id": account_id},
        )

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

    @override
    def give(self, goes: GuestId, stays: GuestId) -> None:
        self._give("agreements", goes, stays)
        values = {"goes": goes, "stays": stays}
        self._transaction.execute(
            "INSERT INTO agreement_references SELECT :stays, center_id, reference, token_id "
            "FROM agreement_references WHERE guest_id = :goes ON CONFLICT DO NOTHING",
            values,
        )
        self.remove_references(goes)

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
