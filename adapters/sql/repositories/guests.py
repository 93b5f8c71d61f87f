"""Guests."""

from __future__ import annotations

from typing_extensions import override

from adapters.sql.repositories.repository import ById
from adapters.sql.rows import Rows
from domain.guests.guest import Guest, Guests
from domain.identifiers import GuestId

_GUESTS = Rows("guests", Guest, key=("id",))


class SqlGuests(ById[GuestId, Guest], Guests):
    """The guests on file."""

    _rows = _GUESTS

    @override
    def remove(self, guest_id: GuestId) -> None:
        _GUESTS.delete(self._transaction, id=guest_id)
