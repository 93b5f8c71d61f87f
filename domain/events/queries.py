"""Use cases that read events."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from domain.centers.center import parse_only_center
from domain.errors import EventNotFound, EventsGone, InvalidCenterId, ServiceUnavailable
from domain.events.event import Event, parse_event_types
from domain.events.event_list import EventFilter, Position
from domain.identifiers import CenterId, EventId, plain_uuid
from domain.outside import Clock
from domain.permissions import MAY_READ_EVENTS, Caller
from domain.storage import RecordUnreadable, Storage, UnitOfWork, WriteUnit

MAX_EXAMINED: Final = 10_000
"""The maximum number of events that one call examines, so that a filter with few matches is not
slow.
"""

_SINCE: Final = (0, 3)
"""The first release that lists every event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EventsRead:
    """Events, sorted by their numbers, and `next`, the position from which to continue reading."""

    events: Sequence[Event]
    next: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class ListEvents:
    """Use case: list at most `size` events that follow a position.

    Only events of centers that the caller may see are listed. The parameters other than `size` are
    unparsed values of the query. If the request contains no position, the list begins at the oldest
    stored event. If there are no further events yet, `next` equals the position in the request.
    Each call first numbers the events that were stored since the last call.

    Events are unavailable (ServiceUnavailable) while a worker from an earlier release runs, because
    its events are not in the list. They are also unavailable if a newer release stored one of them.

    Raises UserNotAuthorized, InvalidField (after, type) or InvalidCenterId. Raises EventsGone if
    events after the position were deleted, or if the position is from another list.
    """

    needs = MAY_READ_EVENTS

    storage: Storage
    clock: Clock

    def __call__(
        self,
        caller: Caller,
        *,
        afters: Sequence[str] = (),
        types: Sequence[str] = (),
        center_ids: Sequence[str] = (),
        size: int,
    ) -> EventsRead:
        caller.require(self.needs)
        only = parse_only_center(center_ids)
        if only is not None:
            caller.require_center(only)
        centers = caller.centers if only is None else frozenset({only})
        asked = Position.parse(afters)
        wanted = EventFilter(centers=centers, types=parse_event_types(types))
        with self.storage.read() as unit:
            seen = unit.workers.seen(self.clock.now())
            if any(each.runs_before(_SINCE) for each in seen):
                raise ServiceUnavailable
            if not unit.events.is_any_unnumbered():
                return _read(unit, only, asked, wanted, size)
        self.storage.transact(_number)
        with self.storage.read() as unit:
            return _read(unit, only, asked, wanted, size)


def _number(unit: WriteUnit) -> None:
    """Number the events that were stored since the last call."""
    unit.events.number()
    unit.commit()


def _read(
    unit: UnitOfWork, only: CenterId | None, asked: Position | None, wanted: EventFilter, size: int
) -> EventsRead:
    """Return at most `size` events that match `wanted` and follow the position `asked`.

    `only` is the center to which the request limits the list, or None.
    """
    if only is not None and unit.centers.get(only) is None:
        raise InvalidCenterId
    first, last = unit.events.ends()
    after = first if asked is None else asked
    if after not in (first, last) and unit.events.position(after.number) != after:
        raise EventsGone
    if after == last:
        return EventsRead(events=(), next=last)
    reaches = min(last.number, after.number + MAX_EXAMINED)
    try:
        found = unit.events.between(after.number, reaches, wanted, limit=size)
    except RecordUnreadable as error:
        raise ServiceUnavailable from error
    if len(found) == size:
        end = found[-1].position
    elif reaches < last.number:
        end = unit.events.position(reaches) or after
    else:
        end = last
    return EventsRead(events=[each.event for each in found], next=end)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadEvent:
    """Use case: read an event by its id.

    Raises UserNotAuthorized. Raises EventNotFound if there is no such event, or if the caller may
    not see its center.
    """

    needs = MAY_READ_EVENTS

    storage: Storage

    def __call__(self, caller: Caller, *, event_id: str) -> Event:
        caller.require(self.needs)
        uuid = plain_uuid(event_id.removeprefix("evt_"))
        with self.storage.read() as unit:
            event = unit.events.get(EventId(f"evt_{uuid}")) if uuid else None
        if event is None or not caller.sees(event.center_id):
            raise EventNotFound
        return event
