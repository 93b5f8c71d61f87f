"""The list of all events, in the one order in which every reader sees them."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple, Protocol, Self

from domain.errors import InvalidField
from domain.events.event import Event, EventType
from domain.identifiers import CenterId, EventId, GuestId

EXPECTED_POSITION: Final = "the `next` of an earlier response, given once"

MAX_NUMBERED: Final = 1_000
"""The most events that one unit of work numbers, to keep the unit short."""

_POSITION = re.compile(r"0|([1-9][0-9]{0,15})-([0-9a-f]{8})")


class Position(NamedTuple):
    """A place in the list: behind the event with this number, or at the beginning.

    `mark` is the beginning of that event's UUID. A list with another event under the number is
    another installation's, or was restored from an older backup.
    """

    number: int = 0
    mark: str = ""

    @classmethod
    def behind(cls, number: int, event_id: EventId) -> Self:
        """Return the position behind an event."""
        return cls(number, event_id.removeprefix("evt_")[:8])

    @classmethod
    def parse(cls, values: Sequence[str]) -> Self | None:
        """Parse the position in a query; None without a position. Raises InvalidField."""
        if not values:
            return None
        matched = _POSITION.fullmatch(values[0])
        if matched is None or len(values) > 1:
            raise InvalidField("after", EXPECTED_POSITION)
        return cls(int(matched[1]), matched[2]) if matched[1] else cls()

    def __str__(self) -> str:
        """Return the form that readers send back."""
        return f"{self.number}-{self.mark}" if self.number else "0"


class ListedEvent(NamedTuple):
    """An event, and the position behind it."""

    event: Event
    position: Position


class Ends(NamedTuple):
    """The position before the oldest event that is kept, and the position behind the latest."""

    first: Position
    last: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """The events to list. None means all centers; without `types`, all types are listed."""

    centers: frozenset[CenterId] | None = None
    types: Collection[EventType] = ()


class Events(Protocol):
    """Every event, whether an endpoint takes it or not.

    An event has no number at first. `number` gives numbers to committed events, without gaps and
    under one lock. So numbers become visible in their order, however many units store events.
    """

    def add(self, event: Event) -> None:
        """Store a new event."""
        ...

    def get(self, event_id: EventId) -> Event | None:
        """Return the event, numbered or not, or None."""
        ...

    def naming(self, guest_id: GuestId) -> Sequence[Event]:
        """Return the events about a guest, oldest first. Reads every event."""
        ...

    def is_any_unnumbered(self) -> bool:
        """Return whether `number` would find an event; changes nothing."""
        ...

    def number(self) -> int:
        """Number at most MAX_NUMBERED events, and return how many.

        An event comes after each event whose unit was committed before its own unit stored it. A
        number never changes. Waits for another unit that numbers events.
        """
        ...

    def ends(self) -> Ends:
        """Return the ends of the numbered list. They are equal if the list is empty."""
        ...

    def position(self, number: int) -> Position | None:
        """Return the position with this number, from `ends().first` on; None if no event has it."""
        ...

    def between(
        self, after: int, last: int, wanted: EventFilter, *, limit: int
    ) -> Sequence[ListedEvent]:
        """Return the events with a number greater than `after`, and at most `last`, in order.

        Raises RecordUnreadable.
        """
        ...

    def forget(self, *, before: datetime, until: datetime) -> int:
        """Delete a limited number of events from the beginning of the list; return the number.

        It ends at the first event that happened between the two times. A clock that was wrong gave
        an event its time if it happened after `until`. What is left of the last deleted event is
        its number and its id.
        """
        ...
