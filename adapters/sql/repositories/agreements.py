"""The texts about bookings."""

from __future__ import annotations

from collections.abc import Sequence

from typing_extensions import override

from adapters.sql.repositories.repository import Repository
from adapters.sql.rows import Rows
from domain.agreements.reservation_text import ReservationText, ReservationTexts
from domain.identifiers import CenterId

_RESERVATION_TEXTS = Rows(
    "center_reservation_texts",
    ReservationText,
    key=("center_id", "language"),
    beside=("center_id",),
)


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
