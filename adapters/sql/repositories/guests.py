"""Guests."""

from __future__ import annotations

from typing_extensions import override

from adapters.sql.repositories.repository import ById
from adapters.sql.rows import Rows
from domain.guests.guest import Guest, Guests
from domain.identifiers import GuestId
from domain.pagination import Page, PageRequest

_GUESTS = Rows("guests", Guest, key=("id",), kept=("language",))


class SqlGuests(ById[GuestId, Guest], Guests):
    """Stores guests."""

    _rows = _GUESTS

    @override
    def lock(self, guest_id: GuestId) -> Guest | None:
        return _GUESTS.get(self._transaction, lock=True, id=guest_id)

    @override
    def with_email(self, email: str, request: PageRequest) -> Page[Guest]:
        condition = "WHERE email IS NOT NULL AND lower(email) = lower(:email) "
        return self._page(condition, {"email": email}, order="id", request=request)

    @override
    def is_on_file(self, guest_id: GuestId) -> bool:
        tables = ("card_sessions", "payment_accounts", "psp_guests")
        found = (f"UNION ALL SELECT 1 FROM {table} WHERE guest_id = :guest_id " for table in tables)
        return self._is_any(
            f"SELECT 1 FROM guests WHERE id = :guest_id {''.join(found)}LIMIT 1",
            {"guest_id": guest_id},
        )

    @override
    def remove(self, guest_id: GuestId) -> None:
        _GUESTS.delete(self._transaction, id=guest_id)
