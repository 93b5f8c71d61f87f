"""The port that sends events to endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from domain.events.event import Event, EventEndpoint


class EventNotSent(Exception):
    """No response came from an endpoint. The text says why, for operators; it may have got it."""


class EventSender(Protocol):
    """Sends events to endpoints, signed as Standard Webhooks describes."""

    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        """Send an event once, and return the HTTP status of the response.

        It takes at most 15 seconds. `now` is the time that is signed. Raises EventNotSent when
        there is no response, or when the endpoint is not one that may be called.
        """
        ...
