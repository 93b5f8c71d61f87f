"""Erasures of guests."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime

import msgspec
from typing_extensions import override

from adapters.sql.repositories.repository import ById, waiting
from adapters.sql.rows import Rows
from domain.identifiers import GuestId
from domain.personal_data.erasure import Erasure, Erasures
from domain.retries import MAX_BACKOFF, Waiting, latest_due

_ERASURES = Rows("erasures", Erasure, key=("guest_id",))


class SqlErasures(ById[GuestId, Erasure], Erasures):
    """Stores the erasures of guests."""

    _rows = _ERASURES
    _is_locked = True

    @override
    def reopen(self, guest_id: GuestId, now: datetime) -> None:
        self._transaction.execute(
            "UPDATE erasures SET due_at = :now, done_at = NULL, unknown_since = NULL "
            "WHERE guest_id = :guest_id",
            {"guest_id": guest_id, "now": now},
        )

    @override
    def among(self, guest_ids: Collection[GuestId]) -> frozenset[GuestId]:
        found = self._transaction.execute(
            f"SELECT guest_id FROM erasures WHERE guest_id {self._dialect.among_ids}",
            {"ids": sorted(guest_ids)},
        )
        return frozenset(GuestId(guest_id) for (guest_id,) in found.fetchall())

    @override
    def merged_into(self, guest_id: GuestId) -> Sequence[GuestId]:
        found = self._transaction.execute(
            "SELECT guest_id FROM erasures WHERE merged_into = :guest_id ORDER BY guest_id",
            {"guest_id": guest_id},
        )
        return [GuestId(merged_id) for (merged_id,) in found.fetchall()]

    @override
    def last_merge_into(self, guest_id: GuestId) -> datetime | None:
        (merged_at,) = self._transaction.one(
            "SELECT max(erased_at) FROM erasures WHERE merged_into = :guest_id",
            {"guest_id": guest_id},
        )
        return merged_at and msgspec.convert(merged_at, datetime)

    @override
    def merge_on(self, merged: GuestId, remaining: GuestId) -> None:
        self._transaction.execute(
            "UPDATE erasures SET merged_into = :remaining WHERE merged_into = :merged",
            {"merged": merged, "remaining": remaining},
        )

    @override
    def due(self, now: datetime, *, at_most: int) -> Sequence[Erasure]:
        return _ERASURES.find_readable(
            self._transaction,
            "WHERE due_at <= :now OR due_at > :latest ORDER BY due_at, guest_id LIMIT :at_most",
            {
                "now": now,
                "latest": latest_due(now, longest_wait=MAX_BACKOFF),
                "at_most": at_most,
            },
        )

    @override
    def count_unfinished(self) -> Waiting:
        # The index contains the erasures that are not done.
        left = "SELECT count(*), min(erased_at) FROM erasures WHERE due_at > '0001-01-01'"
        return waiting(*self._transaction.one(left))

    @override
    def unfinished(self) -> Sequence[Erasure]:
        condition = "WHERE due_at > '0001-01-01' ORDER BY erased_at, guest_id"
        return _ERASURES.find_readable(self._transaction, condition, {})
