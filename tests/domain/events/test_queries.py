"""Clients read the list of events from a position."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from domain.errors import (
    EventNotFound,
    EventsGone,
    InvalidCenterId,
    InvalidField,
    ServiceUnavailable,
    UserNotAuthorized,
)
from domain.events import queries
from domain.events.event import EventType
from domain.events.queries import EventsRead
from domain.worker.heartbeat import WorkerState
from tests.builders import CENTER_ID, OTHER_CENTER_ID, a_worker
from tests.databases import change_by_hand
from tests.installation import OTHER_GOOD_CARD, Installation

DAY = timedelta(days=1)


def read(
    installation: Installation, after: str | None = None, *, size: int = 10, **query: Sequence[str]
) -> EventsRead:
    afters = [] if after is None else [after]
    return installation.use_cases.list_events(
        installation.caller, afters=afters, size=size, **query
    )


def types_of(found: EventsRead) -> list[EventType]:
    return [each.type for each in found.events]


def test_events_can_be_listed_even_if_no_endpoint_exists(installation: Installation) -> None:
    assert read(installation) == EventsRead(events=(), next=read(installation, "0").next)
    installation.removed_card()
    found = read(installation)
    assert types_of(found) == [EventType.ACCOUNT_STORED, EventType.ACCOUNT_REMOVED]
    assert installation.deliveries() == ()


def test_listing_events_continues_after_the_readers_position(installation: Installation) -> None:
    installation.removed_card()
    first = read(installation, size=1)
    rest = read(installation, str(first.next))
    assert types_of(first) + types_of(rest) == [EventType.ACCOUNT_STORED, EventType.ACCOUNT_REMOVED]
    assert read(installation, str(rest.next)) == EventsRead(events=(), next=rest.next)
    installation.stored_card(OTHER_GOOD_CARD)
    assert types_of(read(installation, str(rest.next))) == [EventType.ACCOUNT_STORED]


def test_events_that_a_filter_skips_still_advance_the_position(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queries, "MAX_EXAMINED", 1)
    installation.removed_card()
    nothing = read(installation, types=["account.removed"])
    assert nothing.events == []
    removed = read(installation, str(nothing.next), types=["account.removed"])
    assert types_of(removed) == [EventType.ACCOUNT_REMOVED]
    assert read(installation, str(removed.next), types=["account.removed"]).next == removed.next


def test_a_caller_can_read_only_events_at_its_own_centers(installation: Installation) -> None:
    installation.has_other_center()
    installation.stored_card(center_id=OTHER_CENTER_ID)
    here = installation.stored_card()
    (there,) = read(installation, center_ids=[OTHER_CENTER_ID]).events
    limited = replace(installation.caller, centers=frozenset({CENTER_ID}))
    list_events, read_event = installation.use_cases.list_events, installation.use_cases.read_event

    found = list_events(limited, size=10)
    assert [each.account_id for each in found.events] == [here.account_id]
    assert found.next == read(installation).next
    with pytest.raises(UserNotAuthorized):
        list_events(limited, size=10, center_ids=[OTHER_CENTER_ID])
    assert read_event(installation.caller, event_id=there.event_id) == there
    with pytest.raises(EventNotFound):
        read_event(limited, event_id=there.event_id)


@pytest.mark.parametrize("event_id", ["x", "evt_x", "evt_0e5a1c3e-5d0b-4c46-8f0c-0e8a7f1f3c55"])
def test_reading_an_unknown_event_is_refused(installation: Installation, event_id: str) -> None:
    with pytest.raises(EventNotFound):
        installation.use_cases.read_event(installation.caller, event_id=event_id)


@pytest.mark.parametrize(
    "after", ["", "1", "00", "-1", "1-0e5a1c3", "1-0E5A1C3E", "0-00000000", "9" * 17 + "-00000000"]
)
def test_listing_events_after_a_malformed_position_is_refused(
    installation: Installation, after: str
) -> None:
    with pytest.raises(InvalidField, match="after must be"):
        read(installation, after)
    with pytest.raises(InvalidField, match="after must be"):
        installation.use_cases.list_events(installation.caller, afters=["0", "0"], size=1)


def test_listing_events_by_an_unknown_type_or_center_is_refused(installation: Installation) -> None:
    with pytest.raises(InvalidField, match="type must be"):
        read(installation, types=["test"])
    for center_ids in (["x"], [CENTER_ID, CENTER_ID], ["7d9f2c54-3f0e-4a53-9c1b-0d6f5be1a2c9"]):
        with pytest.raises(InvalidCenterId):
            read(installation, center_ids=center_ids)


def forget(installation: Installation) -> None:
    while installation.container.forget_old_records()():
        pass


def test_a_reader_who_missed_deleted_events_is_refused(installation: Installation) -> None:
    beginning = read(installation).next
    installation.stored_card()
    first = read(installation).next
    installation.stored_card(OTHER_GOOD_CARD)
    installation.clock.advance(31 * DAY)
    forget(installation)

    for position in (beginning, first):
        with pytest.raises(EventsGone):
            read(installation, str(position))
    assert read(installation).events == ()


def test_a_reader_who_had_read_every_deleted_event_can_continue(installation: Installation) -> None:
    installation.stored_card()
    position = read(installation).next
    installation.clock.advance(31 * DAY)
    forget(installation)
    installation.removed_card(OTHER_GOOD_CARD)

    assert len(read(installation, str(position)).events) == 2
    assert read(installation) == read(installation, str(position))


def test_a_position_that_was_read_before_a_backup_was_restored_is_refused(
    installation: Installation,
) -> None:
    installation.stored_card()
    position = read(installation).next
    change_by_hand(installation.storage, "DELETE FROM events")
    with pytest.raises(EventsGone):
        read(installation, str(position))
    installation.stored_card(OTHER_GOOD_CARD)
    with pytest.raises(EventsGone):
        read(installation, str(position))


def test_events_are_not_listed_while_a_worker_of_an_older_release_runs(
    installation: Installation,
) -> None:
    def beats(release: str, state: WorkerState = WorkerState.RUNNING) -> None:
        with installation.storage.write() as unit:
            worker = a_worker(release=release)
            unit.workers.leave_heartbeat(worker, installation.clock.now(), state)
            unit.workers.leave_heartbeat(a_worker(2, release="0.3.0"), installation.clock.now())
            unit.commit()

    beats("0.2.1")
    with pytest.raises(ServiceUnavailable):
        read(installation)
    # Web processes of the older release may still run.
    beats("0.2.1", WorkerState.STOPPED)
    with pytest.raises(ServiceUnavailable):
        read(installation)
    installation.clock.advance(timedelta(minutes=2))
    read(installation)


def test_listing_events_fails_at_an_event_type_from_a_newer_release(
    installation: Installation,
) -> None:
    installation.stored_card()
    change_by_hand(
        installation.storage,
        "UPDATE events SET event = replace(event, 'account.stored', 'new.type')",
    )
    with pytest.raises(ServiceUnavailable):
        read(installation)
