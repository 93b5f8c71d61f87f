"""The list of events: `/api/v1/events` and `/api/v1/events/{event_id}`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Annotated, Final

from msgspec import Meta, Raw, Struct

from adapters.http.operations import SIZE, SIZE_REFUSALS, Operation, Tag, parameter
from adapters.http.responses import Done, example
from domain import errors
from domain.events.event import ENDPOINT_TYPES, Event
from domain.events.event_list import EXPECTED_POSITION
from domain.events.queries import ListEvents, ReadEvent
from domain.pagination import PageRequest
from domain.permissions import Caller

EVENTS: Final = "/api/v1/events"

_PAYLOAD: Final = {"$ref": "#/components/schemas/EventPayload"}


class ListedEvents(Struct, frozen=True, kw_only=True):
    """A part of the list of events. The list is in the same order for every reader."""

    events: Annotated[
        list[Raw],
        Meta(
            description="Events, each with the bytes that endpoints get.",
            extra_json_schema={"type": "array", "items": _PAYLOAD},
        ),
    ]
    next: Annotated[
        str,
        example(
            "1017-0e5a1c3e",
            "The position to read on from, as `after`. If it is the `after` of the request, there "
            "are no further events yet.",
        ),
    ]


class OneEvent(Done, frozen=True, kw_only=True):
    """One event."""

    event: Annotated[Raw, Meta(extra_json_schema=_PAYLOAD)]


@dataclass(frozen=True, kw_only=True)
class EventResource:
    """List and read events. `encode` returns an event as the bytes that endpoints receive."""

    list_events: ListEvents
    read_event: ReadEvent
    encode: Callable[[Event], bytes]

    @Operation(
        method="get",
        path=EVENTS,
        name="listEvents",
        tag=Tag.EVENTS,
        summary="List the events after a position",
        description="The order never changes, and no event appears before a position that was read. "
        "Events about no center, such as `guest.merged`, are listed for tokens without a limit to "
        "centers.",
        parameters=(
            parameter(
                "after",
                "query",
                "The `next` of an earlier response. Without it, the list begins at the oldest event "
                "that is kept.",
                type="string",
                examples=["1017-0e5a1c3e"],
            ),
            parameter(
                "type",
                "query",
                "List only events of this type. Repeat it for several types.",
                type="array",
                items={"type": "string", "enum": [each.value for each in ENDPOINT_TYPES]},
            ),
            parameter("center_id", "query", "List only events of this center."),
            SIZE,
        ),
        calls=ListEvents,
        refusals=(
            *SIZE_REFUSALS,
            errors.InvalidField("after", EXPECTED_POSITION),
            errors.InvalidCenterId(),
            errors.EventsGone(),
        ),
    )
    def list(
        self,
        caller: Caller,
        after: Sequence[str],
        type: Sequence[str],  # noqa: A002  # the name of the parameter
        center_id: Sequence[str],
        size: Sequence[str],
    ) -> ListedEvents:
        """List the events that follow the position `after`. Their order never changes."""
        page = PageRequest.parse(pages=(), sizes=size)
        read = self.list_events(
            caller, afters=after, types=type, center_ids=center_id, size=page.size
        )
        return ListedEvents(
            events=[Raw(self.encode(event)) for event in read.events], next=str(read.next)
        )

    @Operation(
        method="get",
        path=EVENTS + "/{event_id}",
        name="readEvent",
        tag=Tag.EVENTS,
        summary="Read an event",
        parameters=(
            parameter(
                "event_id",
                "path",
                "The event.",
                type="string",
                examples=["evt_0e5a1c3e-5d0b-4c46-8f0c-0e8a7f1f3c55"],
            ),
        ),
        calls=ReadEvent,
        refusals=(errors.EventNotFound(),),
    )
    def read(self, caller: Caller, event_id: str) -> OneEvent:
        """Read an event, even if the list does not contain it yet."""
        return OneEvent(event=Raw(self.encode(self.read_event(caller, event_id=event_id))))
