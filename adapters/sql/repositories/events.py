"""Event endpoints and deliveries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

import msgspec
from typing_extensions import override

from adapters.sql.repositories.queues import Queues
from adapters.sql.repositories.repository import EVENTS_ARE_EVIDENCE, ById
from adapters.sql.rows import Rows
from domain.events.event import (
    DeliveryCounts,
    DueDelivery,
    EventDeliveries,
    EventDelivery,
    EventEndpoint,
    EventEndpoints,
)
from domain.identifiers import AccountId, EndpointId, EventId, GuestId, TokenId

_ENDPOINTS = Rows("event_endpoints", EventEndpoint, key=("endpoint_id",))

_DELIVERIES = Rows(
    "event_deliveries",
    EventDelivery,
    key=("event_id", "endpoint_id"),
    beside=("event_id", "occurred_at"),
)


class SqlEventEndpoints(ById[EndpointId, EventEndpoint], EventEndpoints):
    """The endpoints that receive events."""

    _rows = _ENDPOINTS
    _is_locked = True

    @override
    def all(self) -> Sequence[EventEndpoint]:
        return _ENDPOINTS.find_readable(
            self._transaction,
            "WHERE removed_at IS NULL ORDER BY created_at, endpoint_id",
            {},
        )


class SqlEventDeliveries(Queues[EventDelivery], EventDeliveries):
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
    def add(self, delivery: EventDelivery) -> None:
        super().add(delivery)
        self._transaction.execute(
            "UPDATE event_deliveries SET is_evidence = true WHERE event_id = :event_id "
            f"AND endpoint_id = :endpoint_id AND {EVENTS_ARE_EVIDENCE}",
            {
                "event_id": delivery.event.event_id,
                "endpoint_id": delivery.endpoint_id,
                "token_id": delivery.event.token_id,
            },
        )

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
    def events_since(self, since: datetime) -> Sequence[EventId]:
        found = self._transaction.execute(
            "SELECT DISTINCT occurred_at, event_id FROM event_deliveries "
            "WHERE occurred_at >= :since ORDER BY occurred_at, event_id",
            {"since": since},
        )
        return [EventId(event_id) for _, event_id in found.fetchall()]

    @override
    def naming(self, guest_id: GuestId) -> Sequence[EventDelivery]:
        condition = "WHERE event ->> 'guest_id' = :guest_id"
        found = _DELIVERIES.find(self._transaction, condition, {"guest_id": guest_id})
        # Sorted here, because SQLite would otherwise look up each row in the order of an index.
        return sorted(found, key=lambda each: (each.event.occurred_at, each.event.event_id))

    @override
    def latest(self, *, limit: int, only_failed: bool) -> Sequence[EventDelivery]:
        condition = "WHERE status = 'failed' " if only_failed else ""
        return _DELIVERIES.find_readable(
            self._transaction,
            f"{condition}ORDER BY occurred_at DESC, event_id DESC, endpoint_id DESC LIMIT :limit",
            {"limit": limit},
        )

    @override
    def counts(self) -> Mapping[EndpointId, DeliveryCounts]:
        found = self._transaction.execute(
            "SELECT endpoint_id, count(CASE status WHEN 'pending' THEN 1 END), "
            "min(CASE status WHEN 'pending' THEN occurred_at END), "
            "count(CASE status WHEN 'failed' THEN 1 END) FROM event_deliveries "
            "WHERE status <> 'delivered' AND endpoint_id > '' GROUP BY endpoint_id"
        )
        return {
            EndpointId(endpoint_id): DeliveryCounts(
                pending=pending,
                pending_since=msgspec.convert(since, datetime | None),
                failed=failed,
            )
            for endpoint_id, pending, since, failed in found.fetchall()
        }

    @override
    def last_successes(self) -> Mapping[EndpointId, datetime]:
        found = self._transaction.execute(
            "SELECT endpoint_id, max(attempted_at) FROM event_deliveries "
            "WHERE status = 'delivered' GROUP BY endpoint_id"
        )
        return {
            EndpointId(endpoint_id): msgspec.convert(time, datetime)
            for endpoint_id, time in found.fetchall()
        }

    @override
    def of_session(self, token_id: TokenId, *, since: datetime) -> Sequence[EventDelivery]:
        return _DELIVERIES.find_readable(
            self._transaction,
            "WHERE occurred_at >= :since AND event ->> 'token_id' = :token_id "
            "ORDER BY occurred_at, event_id, endpoint_id",
            {"token_id": token_id, "since": since},
        )

    @override
    def of_account(self, account_id: AccountId) -> Sequence[EventDelivery]:
        return _DELIVERIES.find_readable(
            self._transaction,
            "WHERE event ->> 'account_id' = :account_id "
            "ORDER BY occurred_at, event_id, endpoint_id",
            {"account_id": account_id},
        )

    @override
    def is_any_due(self, now: datetime, *, except_to: Collection[EndpointId] = ()) -> bool:
        return bool(self._due(now, except_to))

    @override
    def take_due(
        self, now: datetime, *, until: datetime, except_to: Collection[EndpointId] = ()
    ) -> DueDelivery | None:
        queues = sorted(
            self._due(now, except_to), key=lambda queue: (queue.kind, queue.since, queue.target)
        )
        taken = self._take(queues, self._rows.key, until)
        return taken and DueDelivery(taken[0], taken[1], until)

    @override
    def no_longer_evidence(self, guest_id: GuestId) -> None:
        found = self._transaction.execute(
            "SELECT token_id FROM agreements WHERE guest_id = :guest_id", {"guest_id": guest_id}
        )
        self._transaction.execute_many(
            "UPDATE event_deliveries SET is_evidence = false WHERE event ->> 'token_id' = :token_id",
            [{"token_id": token_id} for (token_id,) in found.fetchall()],
        )

    @override
    def forget(self, *, before: datetime) -> int:
        condition = (
            "NOT is_evidence AND occurred_at < :before AND due_at IS NULL ORDER BY occurred_at"
        )
        return self._forget("event_deliveries", "event_id, endpoint_id", condition, before=before)
