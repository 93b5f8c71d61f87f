from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from operator import attrgetter
from typing import Final

import pytest

from adapters.psp_suite.samples import GUEST_ID, NOW, OTHER_GUEST_ID, TOKEN_ID, a_uuid
from domain.events.event import DeliveryCounts, DueDelivery, EventDeliveries, EventType
from domain.identifiers import EndpointId, EventId
from domain.storage import AlreadyStored, Storage
from tests.builders import an_event_delivery, an_event_endpoint
from tests.contracts.storage.records import DAY, MICROSECOND, MINUTE, OTHER_TOKEN_ID, add, store
from tests.databases import committed


def test_each_url_can_have_only_one_active_endpoint(storage: Storage) -> None:
    other = EndpointId(a_uuid(401))
    with storage.write() as unit:
        unit.event_endpoints.add(an_event_endpoint(disabled_at=NOW))
        with pytest.raises(AlreadyStored):
            unit.event_endpoints.add(an_event_endpoint(endpoint_id=other))
        unit.event_endpoints.update(an_event_endpoint(removed_at=NOW))
        unit.event_endpoints.add(an_event_endpoint(endpoint_id=other))
        later = an_event_endpoint(endpoint_id=EndpointId(a_uuid(1)), url="https://b.example")
        unit.event_endpoints.add(replace(later, created_at=NOW + MINUTE))
        listed = unit.event_endpoints.all()
        assert [each.endpoint_id for each in listed] == [other, later.endpoint_id]


def test_an_event_has_one_delivery_to_each_endpoint(storage: Storage) -> None:
    store(storage, an_event_delivery())
    with storage.write() as unit:
        with pytest.raises(AlreadyStored):
            unit.event_deliveries.add(an_event_delivery(due_at=None))
        event_id, endpoint_id = (
            an_event_delivery().event.event_id,
            an_event_endpoint().endpoint_id,
        )
        assert unit.event_deliveries.get(event_id, endpoint_id) == an_event_delivery()


EVENTS: Final = [
    replace(an_event_delivery(number).event, occurred_at=NOW + number * MINUTE)
    for number in range(4)
]
FAILED: Final = [an_event_delivery(event=event).failed_for_good("500", NOW) for event in EVENTS[:3]]
PENDING: Final = an_event_delivery(event=EVENTS[0], endpoint_id=EndpointId(a_uuid(401)))
DELIVERED: Final = an_event_delivery(event=EVENTS[3]).delivered("200", NOW)


@pytest.fixture
def deliveries(storage: Storage) -> Iterator[EventDeliveries]:
    """The deliveries of four events, in a write unit."""
    with storage.write() as unit:
        add(unit, *FAILED, PENDING, DELIVERED)
        yield unit.event_deliveries


def test_deliveries_are_found_by_their_event(deliveries: EventDeliveries) -> None:
    assert deliveries.of(EVENTS[0].event_id) == (FAILED[0], PENDING)


def test_deliveries_are_found_by_the_guest_of_their_event(deliveries: EventDeliveries) -> None:
    about_another = replace(EVENTS[0], event_id=EventId("evt_other"), guest_id=OTHER_GUEST_ID)
    deliveries.add(another := replace(PENDING, event=about_another))
    assert deliveries.naming(OTHER_GUEST_ID) == [another]
    *of_first, third, fourth, fifth = deliveries.naming(GUEST_ID)
    assert sorted(of_first, key=attrgetter("endpoint_id")) == [FAILED[0], PENDING]
    assert [third, fourth, fifth] == [FAILED[1], FAILED[2], DELIVERED]


def test_deliveries_are_listed_latest_first(deliveries: EventDeliveries) -> None:
    latest = deliveries.latest(limit=3, only_failed=False)
    assert latest == (DELIVERED, FAILED[2], FAILED[1])
    assert deliveries.latest(limit=9, only_failed=True) == (*FAILED[::-1],)


def test_the_deliveries_of_each_endpoint_are_counted_by_status(deliveries: EventDeliveries) -> None:
    first, second = DELIVERED.endpoint_id, PENDING.endpoint_id
    assert deliveries.counts() == {
        first: DeliveryCounts(failed=3),
        second: DeliveryCounts(pending=1, pending_since=PENDING.event.occurred_at),
    }
    assert deliveries.last_successes() == {first: NOW}
    deliveries.update(PENDING.delivered("200", NOW + MINUTE))
    deliveries.update(FAILED[0].delivered("200", NOW - MINUTE))
    deliveries.update(FAILED[1].replayed(NOW))
    assert deliveries.counts() == {
        first: DeliveryCounts(pending=1, pending_since=FAILED[1].event.occurred_at, failed=1)
    }
    assert deliveries.last_successes() == {first: NOW, second: NOW + MINUTE}


def test_the_deliveries_of_a_session_are_listed_oldest_first(deliveries: EventDeliveries) -> None:
    of_another = replace(an_event_delivery(7).event, token_id=OTHER_TOKEN_ID)
    deliveries.add(an_event_delivery(event=of_another))

    found = deliveries.of_session(TOKEN_ID, since=NOW)
    assert found == (FAILED[0], PENDING, *FAILED[1:], DELIVERED)
    assert deliveries.of_session(TOKEN_ID, since=NOW + 2 * MINUTE) == (FAILED[2], DELIVERED)
    assert deliveries.of_session(OTHER_TOKEN_ID, since=NOW) == (
        an_event_delivery(event=of_another),
    )


def test_old_event_deliveries_are_deleted(deliveries: EventDeliveries) -> None:
    assert deliveries.forget(before=NOW + 2 * MINUTE) == 2
    assert deliveries.latest(limit=9, only_failed=False) == (DELIVERED, FAILED[2], PENDING)


def test_a_worker_does_not_take_deliveries_to_excluded_endpoints(storage: Storage) -> None:
    endpoints = [EndpointId(a_uuid(number)) for number in (400, 401)]
    with storage.write() as unit:
        for each in endpoints:
            at = {"endpoint_id": each, "url": f"https://shop.example/{each}"}
            unit.event_endpoints.add(an_event_endpoint(**at))
            unit.event_deliveries.add(an_event_delivery(endpoint_id=each))
        repository = unit.event_deliveries
        assert not repository.is_any_due(NOW - MINUTE)
        assert repository.is_any_due(NOW, except_to=endpoints[:1])
        taken = repository.take_due(NOW, until=NOW + MINUTE, except_to=endpoints[:1])
        event_id = an_event_delivery().event.event_id
        assert taken == DueDelivery(event_id, endpoints[1], due_at=NOW + MINUTE)
        assert unit.event_deliveries.get(event_id, endpoints[1]) == an_event_delivery(
            endpoint_id=endpoints[1], due_at=NOW + MINUTE
        )
        assert not repository.is_any_due(NOW, except_to=endpoints[:1])
        assert repository.take_due(NOW, until=NOW, except_to=endpoints) is None


def test_the_delivery_to_the_endpoint_that_waited_longest_is_taken_first(storage: Storage) -> None:
    with committed(storage) as unit:
        for number, wait in ((401, MINUTE), (402, 3 * MINUTE), (400, 2 * MINUTE)):
            each = EndpointId(a_uuid(number))
            unit.event_endpoints.add(
                an_event_endpoint(endpoint_id=each, url=f"https://{number}.example")
            )
            unit.event_deliveries.add(an_event_delivery(endpoint_id=each, due_at=NOW - wait))
    with committed(storage) as unit:
        taken = [unit.event_deliveries.take_due(NOW, until=NOW + DAY) for _ in range(3)]
    assert [each.endpoint_id for each in taken if each] == [a_uuid(n) for n in (402, 400, 401)]


def test_deliveries_of_expiry_notices_are_taken_after_all_other_deliveries(
    storage: Storage,
) -> None:
    first, second = (EndpointId(a_uuid(number)) for number in (400, 401))
    told = [
        (first, EventType.ACCOUNT_EXPIRING, -DAY),
        (first, EventType.ACCOUNT_STORED, timedelta(0)),
        (first, EventType.ACCOUNT_EXPIRING, -2 * DAY),
        (second, EventType.SESSION_FAILED, -MINUTE),
        (second, EventType.ACCOUNT_STORED, MICROSECOND),
    ]
    with storage.write() as unit:
        for number, (endpoint_id, event_type, wait) in enumerate(told):
            event = replace(an_event_delivery(number).event, type=event_type)
            unit.event_deliveries.add(
                an_event_delivery(event=event, endpoint_id=endpoint_id, due_at=NOW + wait)
            )
        taken = [unit.event_deliveries.take_due(NOW, until=NOW + MINUTE) for _ in range(5)]
    expected = [an_event_delivery(number).event.event_id for number in (3, 1, 2, 0)]
    assert [each.event_id for each in taken if each] == expected
