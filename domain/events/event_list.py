"""The list of all events, whose order is the same for every reader and never changes."""

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
"""The maximum number of events that are numbered in one unit of work, so that the unit is short."""

_POSITION = re.compile(r"0|([1-9][0-9]{0,15})-([0-9a-f]{8})")


class Position(NamedTuple):
    """A position in the list: the place after the event whose number is `number`.

    If `number` is 0, the position is the beginning of the list. `mark` is the first 8 digits of
    that event's UUID. If an event with another UUID has the number, the position came from another
    installation, or the list was restored from an older backup.
    """

    number: int = 0
    mark: str = ""

    @classmethod
    def behind(cls, number: int, event_id: EventId) -> Self:
        """Return the position after the event with this number and id."""
        return cls(number, event_id.removeprefix("evt_")[:8])

    @classmethod
    def parse(cls, values: Sequence[str]) -> Self | None:
        """Parse the values of the query parameter `after`. Raises InvalidField.

        Return None if there are no values.
        """
        if not values:
            return None
        matched = _POSITION.fullmatch(values[0])
        if matched is None or len(values) > 1:
            raise InvalidField("after", EXPECTED_POSITION)
        return cls(int(matched[1]), matched[2]) if matched[1] else cls()

    def __str__(self) -> str:
        """Return the text that `parse` accepts."""
        return f"{self.number}-{self.mark}" if self.number else "0"


class ListedEvent(NamedTuple):
    """An event, and the position after it."""

    event: Event
    position: Position


class Ends(NamedTuple):
    """The positions before the oldest stored event and after the latest event."""

    first: Position
    last: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class EventFilter:
    """The events to list. `centers` is None for all centers, and `types` is empty for all types."""

    centers: frozenset[CenterId] | None = None
    types: Collection[EventType] = ()


class Events(Protocol):
    """Repository of all events, including those that no endpoint receives.

    A new event has no number. Later, `number` assigns consecutive numbers to committed events, and
    only one unit of work does so at a time. Therefore a reader never sees a number before all lower
    numbers, even if many units store events concurrently.
    """

    def add(self, event: Event) -> None:
        """Store a new event."""
        ...

    def get(self, event_id: EventId) -> Event | None:
        """Return the event, even if it has no number yet, or None."""
        ...

    def about_guest(self, guest_id: GuestId) -> Sequence[Event]:
        """Return the events about a guest, oldest first.

        This is slow, because every event is read.
        """
        ...

    def is_any_unnumbered(self) -> bool:
        """Return whether any event has no number yet."""
        ...

    def number(self) -> int:
        """Assign numbers to at most MAX_NUMBERED events, and return how many were numbered.

        If one unit was committed before another unit stored an event, the events of the first unit
        get the lower numbers. A number never changes. If another unit is numbering events, this
        call waits until that unit ends.
        """
        ...

    def ends(self) -> Ends:
        """Return both ends of the numbered events. If no event is numbered, the ends are equal."""
        ...

    def position(self, number: int) -> Position | None:
        """Return the position after the event with this number.

        Return None if there is no such event, or if the event was deleted. The newest deleted event
        is an exception: the result is then `ends().first`, where the stored events begin.
        """
        ...

    def between(
        self, after: int, last: int, wanted: EventFilter, *, limit: int
    ) -> Sequence[ListedEvent]:
        """Return the first `limit` events that match `wanted`, with lower numbers first.

        Only events with numbers from `after + 1` to `last` are returned.

        Raises RecordUnreadable.
        """
        ...

    def forget(self, *, before: datetime, until: datetime) -> int:
        """Delete old events from the beginning of the list, a limited number per call.

        Return how many were deleted. Deletion stops at the first event that occurred between
        `before` and `until`. An event that occurred after `until` is deleted, because its time must
        come from a wrong clock. Only the number and the id of the last deleted event are kept.
        """
        ...
