"""A stand-in for the event sender. It behaves like all event endpoints of clients at once."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from enum import StrEnum
from typing import Final, NamedTuple

from typing_extensions import override

from adapters.events.payload import encode
from adapters.psp_suite.samples import a_uuid
from domain.events.event import GONE, Event, EventEndpoint, EventType, Secrets
from domain.events.event_sender import EventNotSent, EventSender
from domain.identifiers import CenterId, EndpointId
from domain.retries import LEASE

EVERYTHING: Final = EndpointId(a_uuid(90))
"""The endpoint that exists from the start, receives all events and is never removed."""


class EndpointTrouble(StrEnum):
    """How an endpoint fails for a while. The values appear in the history of a run."""

    REFUSES = "responds 500"
    SILENT = "does not respond"
    LOSES_RESPONSES = "takes events and does not respond"
    GONE = "responds 410"


class Arrival(NamedTuple):
    """An event that an endpoint has accepted, and the secrets that signed it."""

    endpoint_id: str
    event_id: str
    body: bytes
    secrets: tuple[str, ...]


class Endpoints(EventSender):
    """All endpoints, whatever their addresses.

    - `arrivals`: the events that the endpoints accepted.
    - `troubles`: how each endpoint fails, for the endpoints that fail at present.
    - `replayed`: the events that an operator replayed or tried to replay.
    - `sent_at_once`: the events that one process sent while another process held their lease.
    - `under_way`: the event, the endpoint and the start of each sending that is in progress.
    """

    def __init__(self) -> None:
        self.arrivals: list[Arrival] = []
        self.troubles: dict[str, EndpointTrouble] = {}
        self.replayed: set[str] = set()
        self.sent_at_once: list[str] = []
        self.under_way: list[tuple[str, str, datetime]] = []

    @override
    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        trouble = self.troubles.get(endpoint.endpoint_id)
        if trouble is EndpointTrouble.REFUSES:
            return 500
        if trouble is EndpointTrouble.GONE:
            return GONE
        if trouble is EndpointTrouble.SILENT:
            raise EventNotSent(trouble)
        self.arrivals.append(
            Arrival(endpoint.endpoint_id, event.event_id, encode(event), endpoint.secrets.at(now))
        )
        if trouble is EndpointTrouble.LOSES_RESPONSES:
            raise EventNotSent(trouble)
        return 204


class LeaseCheck(EventSender):
    """Records in `endpoints` each event that is sent during another sending with a valid lease.

    A step is interrupted at most once. If the interruption comes while an event is being sent, the
    lease of that event has only just begun.
    """

    def __init__(self, sender: EventSender, endpoints: Endpoints) -> None:
        self._sender = sender
        self._endpoints = endpoints

    @override
    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        under_way = self._endpoints.under_way
        if event.event_id not in self._endpoints.replayed and any(
            (event.event_id, endpoint.endpoint_id) == (event_id, endpoint_id) and now < at + LEASE
            for event_id, endpoint_id, at in under_way
        ):
            self._endpoints.sent_at_once.append(event.event_id)
        under_way.append((event.event_id, endpoint.endpoint_id, now))
        try:
            return self._sender.send(event, endpoint, now=now)
        finally:
            under_way.pop()


def an_endpoint(
    endpoint_id: EndpointId,
    *,
    now: datetime,
    types: Iterable[EventType] = EventType,
    centers: Iterable[CenterId] | None = None,
) -> EventEndpoint:
    """Return an endpoint with a unique address and secret."""
    return EventEndpoint(
        endpoint_id=endpoint_id,
        url=f"https://shop.example/{endpoint_id}",
        types=tuple(types),
        centers=None if centers is None else frozenset(centers),
        secrets=Secrets.of(f"the secret of {endpoint_id}"),
        created_at=now,
    )
