"""The port that sends events to endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from domain.events.event import Event, EventEndpoint


class EventNotSent(Exception):
    """An endpoint did not respond; it may have received the event.

    The text says why, for operators.
    """


class EventSender(Protocol):
    """Sends events to endpoints, signed as Standard Webhooks describes."""

    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        """Send an event once, and return the HTTP status of the response.

        Takes at most 15 seconds. `now` is the signed time. Raises EventNotSent if there is no
        response, or if the endpoint must not be called.
        """
        ...
