"""List the endpoints that take events, and the deliveries to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from domain.events.event import EventDelivery, EventEndpoint
from domain.storage import Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEventEndpoints:
    """Use case: return the endpoints that are not removed, oldest first."""

    storage: Storage

    def __call__(self) -> Sequence[EventEndpoint]:
        with self.storage.read() as unit:
            return unit.event_endpoints.all()


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEventDeliveries:
    """Use case: return the deliveries that are on record, newest first.

    At most `limit` of them; with `only_failed`, those that are not tried any more.
    `ForgetOldRecords` says how long they are kept.
    """

    storage: Storage

    def __call__(self, *, limit: int, only_failed: bool = False) -> Sequence[EventDelivery]:
        with self.storage.read() as unit:
            return unit.event_deliveries.latest(limit=limit, only_failed=only_failed)
