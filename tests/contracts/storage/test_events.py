from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from adapters.psp_suite.samples import NOW, a_uuid
from domain.events.event import DeliveryCounts, DueDelivery, EventType
from domain.identifiers import EndpointId
from domain.storage import AlreadyStored, Storage
from tests.builders import an_event_delivery, an_event_endpoint
from tests.contracts.storage.records import DAY, MICROSECOND, MINUTE, store
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


def test_the_deliveries_of_each_endpoint_are_counted_by_status(storage: Storage) -> None:
    first, second = (EndpointId(a_uuid(number)) for number in (400, 401))
    failed, pending, delivered = (
        an_event_delivery(1).failed_for_good("500", NOW),
        an_event_delivery(2, endpoint_id=second),
        an_event_delivery(3).delivered("200", NOW),
    )
    store(storage, failed, pending, delivered)
    with storage.read() as unit:
        assert unit.event_deliveries.counts() == {
            first: DeliveryCounts(failed=1),
            second: DeliveryCounts(pending=1, pending_since=NOW),
        }
        assert unit.event_deliveries.last_successes() == {first: NOW}
