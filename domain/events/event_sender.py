"""The port that sends events to endpoints."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from domain.events.event import Event, EventEndpoint


class EventNotSent(Exception):
    """An event was not sent, or the endpoint did not send a valid response.

    In the second case, the endpoint may have received the event. The text of the exception is the
    reason, for operators.
    """


class EventSender(Protocol):
    """Sends events to endpoints, with signatures according to Standard Webhooks."""

    def send(self, event: Event, endpoint: EventEndpoint, *, now: datetime) -> int:
        """Send an event once, and return the HTTP status of the response.

        Takes at most 15 seconds. `now` is the time in the signature. Raises EventNotSent if there
        is no valid response, or if the endpoint's address is not allowed.
        """
        ...
