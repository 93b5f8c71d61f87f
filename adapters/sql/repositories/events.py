"""Events, event endpoints and deliveries."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile

import msgspec
from typing_extensions import override

from adapters.sql.repositories.queues import Queues
from adapters.sql.repositories.repository import (
    EVENTS_ARE_EVIDENCE,
    MAX_FORGOTTEN,
    ById,
    Repository,
)
from adapters.sql.rows import Rows
from adapters.sql.transaction import Values
from domain.events.event import (
    DeliveryCounts,
    DueDelivery,
    Event,
    EventDeliveries,
    EventDelivery,
    EventEndpoint,
    EventEndpoints,
)
from domain.events.event_list import (
    MAX_NUMBERED,
    Ends,
    EventFilter,
    Events,
    ListedEvent,
    Position,
)
from domain.identifiers import AccountId, EndpointId, EventId, GuestId, TokenId

_ENDPOINTS = Rows("event_endpoints", EventEndpoint, key=("endpoint_id",))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Numbered:
    number: int | None
    event: Event


_EVENTS = Rows(
    "events", _Numbered, key=("event_id",), extra_columns=("event_id", "center_id", "occurred_at")
)

_DELIVERIES = Rows(
    "event_deliveries",
    EventDelivery,
    key=("event_id", "endpoint_id"),
    extra_columns=("event_id", "occurred_at"),
)


class SqlEvents(Repository, Events):
    """Stores the list of events. The latest deleted event keeps its row, with `event` NULL."""

    @override
    def add(self, event: Event) -> None:
        row = _EVENTS.row(_Numbered(number=None, event=event))
        self._transaction.execute(
            _EVENTS.insert,
            {
                **row,
                "event_id": event.event_id,
                "center_id": event.center_id,
                "occurred_at": event.occurred_at,
            },
        )

    @override
    def get(self, event_id: EventId) -> Event | None:
        found = self._find("event_id = :event_id", {"event_id": event_id})
        return found[0].event if found else None

    @override
    def about_guest(self, guest_id: GuestId) -> Sequence[Event]:
        found = self._find("event ->> 'guest_id' = :guest_id", {"guest_id": guest_id})
        return sorted((each.event for each in found), key=lambda it: (it.occurred_at, it.event_id))

    @override
    def is_any_unnumbered(self) -> bool:
        return self._is_any("SELECT 1 FROM events WHERE number IS NULL LIMIT 1", {})

    @override
    def number(self) -> int:
        # Concurrent units may commit their rows in another order than they have created them. This
        # statement sees only committed rows. A row that is committed later gets a higher number,
        # because the lock is free only when the lower numbers are visible.
        self._transaction.lock("events")
        created = self._dialect.order_of_creation
        return self._transaction.execute(
            "UPDATE events SET number = numbered.number FROM (SELECT event_id, "
            "(SELECT coalesce(max(number), 0) FROM events WHERE number > 0) "
            f"+ row_number() OVER (ORDER BY {created}) AS number FROM events "
            f"WHERE number IS NULL ORDER BY {created} LIMIT :limit) AS numbered "
            "WHERE events.event_id = numbered.event_id",
            {"limit": MAX_NUMBERED},
        ).rowcount

    @override
    def ends(self) -> Ends:
        found = self._transaction.execute(
            "SELECT number, event_id, event IS NULL FROM events WHERE number > 0 "
            "AND (number = (SELECT min(number) FROM events WHERE number > 0) "
            "OR number = (SELECT max(number) FROM events WHERE number > 0)) ORDER BY number"
        ).fetchall()
        if not found:
            return Ends(Position(), Position())
        (*first, is_gone), (*last, _) = found[0], found[-1]
        return Ends(Position.behind(*first) if is_gone else Position(), Position.behind(*last))

    @override
    def position(self, number: int) -> Position | None:
        row = self._transaction.execute(
            "SELECT number, event_id FROM events WHERE number = :number", {"number": number}
        ).fetchone()
        return None if row is None else Position.behind(*row)

    @override
    def between(
        self, after: int, last: int, wanted: EventFilter, *, limit: int
    ) -> Sequence[ListedEvent]:
        centers = f"center_id {self._dialect.among_ids}"
        types = {name.replace(".", "_"): name for name in wanted.types}
        conditions = {
            "number > :after AND number <= :last": last,
            centers: wanted.centers,
            f"event ->> 'type' IN ({', '.join(f':{name}' for name in types)})": types or None,
        }
        given = " AND ".join(each for each, value in conditions.items() if value is not None)
        found = self._find(
            f"{given} ORDER BY number LIMIT :limit",
            {
                **types,
                "after": after,
                "last": last,
                "ids": sorted(wanted.centers or ()),
                "limit": limit,
            },
        )
        return [
            ListedEvent(each.event, Position.behind(each.number or 0, each.event.event_id))
            for each in found
        ]

    @override
    def forget(self, *, before: datetime, until: datetime) -> int:
        oldest = self._transaction.execute(
            "SELECT number, event IS NOT NULL AND occurred_at >= :before AND occurred_at <= :until "
            "FROM events WHERE number > 0 ORDER BY number LIMIT :limit",
            {"before": before, "until": until, "limit": MAX_FORGOTTEN},
        ).fetchall()
        old = [number for number, _ in takewhile(lambda row: not row[1], oldest)]
        if not old:
            return 0
        statements = (
            "DELETE FROM events WHERE number < :last",
            "UPDATE events SET event = NULL WHERE number = :last AND event IS NOT NULL",
        )
        gone = [self._transaction.execute(each, {"last": old[-1]}).rowcount for each in statements]
        return sum(gone)

    def _find(self, condition: str, values: Values) -> Sequence[_Numbered]:
        return _EVENTS.find(self._transaction, f"WHERE event IS NOT NULL AND {condition}", values)


class SqlEventEndpoints(ById[EndpointId, EventEndpoint], EventEndpoints):
    """Stores the endpoints that receive events."""

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
    """Stores the deliveries of events."""

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
    def about_guest(self, guest_id: GuestId) -> Sequence[EventDelivery]:
        condition = "WHERE event ->> 'guest_id' = :guest_id"
        found = _DELIVERIES.find(self._transaction, condition, {"guest_id": guest_id})
        # The rows are sorted here. With ORDER BY, SQLite would look up each row in the order of an
        # index.
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
    def unmark_evidence(self, guest_id: GuestId) -> None:
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
