from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from threading import Barrier

import pytest

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import NOW, a_uuid
from domain.events.event import Event
from domain.events.event_list import Ends, EventFilter, Position
from domain.identifiers import EventId
from domain.storage import RecordUnreadable, Storage
from tests.builders import CENTER_ID, OTHER_CENTER_ID, an_event_delivery
from tests.concurrency import elsewhere
from tests.contracts.storage.records import DAY, store
from tests.databases import committed

EVERYTHING = EventFilter()


def an_event(number: int) -> Event:
    event = an_event_delivery(number).event
    return replace(event, event_id=EventId(f"evt_{number:08x}{a_uuid(500 + number)[8:]}"))


def behind(number: int, event: Event) -> Position:
    return Position.behind(number, event.event_id)


def number_all(storage: Storage) -> int:
    with committed(storage) as unit:
        return unit.events.number()


def listed(
    storage: Storage, after: int = 0, wanted: EventFilter = EVERYTHING, limit: int = 100
) -> Sequence[tuple[int, EventId]]:
    with storage.read() as unit:
        found = unit.events.between(after, unit.events.ends().last.number, wanted, limit=limit)
    return [(each.position.number, each.event.event_id) for each in found]


def test_an_event_is_listed_only_after_it_was_numbered(storage: Storage) -> None:
    first, second = an_event(1), an_event(2)
    store(storage, second, first)
    with storage.read() as unit:
        assert unit.events.ends() == Ends(Position(), Position())
        assert unit.events.is_any_unnumbered()
        assert unit.events.get(first.event_id) == first
    assert listed(storage) == []
    assert number_all(storage) == 2
    assert number_all(storage) == 0
    assert listed(storage) == [(1, second.event_id), (2, first.event_id)]
    with storage.read() as unit:
        assert unit.events.ends() == Ends(Position(), behind(2, first))
        assert not unit.events.is_any_unnumbered()
        assert unit.events.position(1) == behind(1, second)
        assert unit.events.position(3) is None


def test_events_are_listed_in_the_order_of_their_commits(
    postgresql_storage: Storage,
) -> None:
    storage = postgresql_storage
    early, late = an_event(1), an_event(2)
    with storage.write() as unit:
        unit.events.add(early)
        elsewhere(lambda: store(storage, late))
        elsewhere(lambda: number_all(storage))
        unit.commit()
    number_all(storage)
    assert listed(storage) == [(1, late.event_id), (2, early.event_id)]


def test_readers_see_every_event_once_while_many_writers_add_events(storage: Storage) -> None:
    """Two readers continue from their positions while the writers add events."""
    writers, readers, each_writes = 20, 2, 4
    begin = Barrier(writers + readers)
    seen: list[list[tuple[int, EventId]]] = [[] for _ in range(readers)]

    def take_part(index: int) -> None:
        begin.wait()
        if index < writers:
            for number in range(each_writes):
                store(storage, an_event(index * each_writes + number))
            return
        mine = seen[index - writers]
        while len(mine) < writers * each_writes:
            number_all(storage)
            mine.extend(listed(storage, after=mine[-1][0] if mine else 0, limit=7))

    at_once(writers + readers, take_part)
    assert seen[0] == seen[1] == listed(storage, limit=1_000)
    assert [number for number, _ in seen[0]] == list(range(1, writers * each_writes + 1))
    assert {event_id for _, event_id in seen[0]} == {
        an_event(number).event_id for number in range(writers * each_writes)
    }


def test_events_can_be_filtered_by_center(storage: Storage) -> None:
    here, there = an_event(1), replace(an_event(2), center_id=OTHER_CENTER_ID)
    store(storage, here, there)
    number_all(storage)
    at_center = EventFilter(centers=frozenset({CENTER_ID}))
    assert listed(storage, wanted=at_center) == [(1, here.event_id)]
    assert listed(storage, wanted=EventFilter(centers=frozenset())) == []


def forget(storage: Storage, kept_for: timedelta = DAY) -> int:
    with committed(storage) as unit:
        return unit.events.forget(before=NOW - kept_for, until=NOW + kept_for)


def test_old_events_are_deleted_from_the_beginning_of_the_list(storage: Storage) -> None:
    old = [replace(an_event(number), occurred_at=NOW - 2 * DAY) for number in (1, 2)]
    wrong_clock = replace(an_event(3), occurred_at=NOW + 2 * DAY)
    kept, behind_kept = an_event(4), replace(an_event(5), occurred_at=NOW - 2 * DAY)
    store(storage, *old, wrong_clock, kept, behind_kept)
    assert forget(storage) == 0
    number_all(storage)
    assert forget(storage) == 3
    assert forget(storage) == 0
    assert listed(storage) == [(4, kept.event_id), (5, behind_kept.event_id)]
    with storage.read() as unit:
        assert unit.events.ends() == Ends(behind(3, wrong_clock), behind(5, behind_kept))
        assert unit.events.get(wrong_clock.event_id) is None
        assert unit.events.position(2) is None
        assert unit.events.position(3) == behind(3, wrong_clock)
    # Deleted events do not affect how long later events are kept.
    with committed(storage) as unit:
        unit.events.forget(before=NOW + DAY, until=NOW + 3 * DAY)
    assert listed(storage) == []


def test_event_numbers_continue_after_all_events_were_deleted(storage: Storage) -> None:
    old = replace(an_event(1), occurred_at=NOW - 2 * DAY)
    store(storage, old)
    number_all(storage)
    forget(storage)
    with storage.read() as unit:
        assert unit.events.ends() == Ends(behind(1, old), behind(1, old))
    store(storage, an_event(2))
    number_all(storage)
    assert listed(storage) == [(2, an_event(2).event_id)]


def test_listing_events_fails_at_an_event_from_a_newer_release(storage: Storage) -> None:
    newer = replace(an_event(1))
    object.__setattr__(newer, "type", "session.teleported")
    store(storage, newer)
    number_all(storage)
    with pytest.raises(RecordUnreadable):
        listed(storage)
