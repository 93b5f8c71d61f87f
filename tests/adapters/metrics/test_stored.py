from __future__ import annotations

from datetime import timedelta
from importlib.metadata import version

import pytest

from adapters.fake_psp.plugin import NAME as FAKE
from domain.worker.heartbeat import WorkerState
from tests.adapters.metrics.conftest import Measured
from tests.builders import a_worker, an_event_endpoint
from tests.databases import change_by_hand, committed
from tests.installation import MERCHANT, Trouble

# Events may be sent to this machine.
pytestmark = pytest.mark.installed(CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")


MINUTE = timedelta(minutes=1)


def test_the_metrics_include_the_release(measured: Measured) -> None:
    assert measured.scrape()["build_info"] == {(version("cardonfile"),): 1}


def test_the_metrics_count_running_workers(measured: Measured) -> None:
    leave = measured.installation.container.leave_heartbeat()
    for number, state in enumerate((WorkerState.RUNNING, WorkerState.STOPPED)):
        leave(a_worker(number), state)
    assert measured.scrape()["workers"] == {(): 1}

    measured.installation.clock.advance(2 * MINUTE)
    assert measured.scrape()["workers"] == {(): 0}


def test_the_metrics_count_due_work_by_kind_with_the_age_of_the_oldest_item(
    measured: Measured,
) -> None:
    opened = measured.installation.opened_session()
    assert set(measured.scrape()["due_items"].values()) == {0}
    assert opened.due_at is not None
    measured.installation.clock.advance(
        opened.due_at - measured.installation.clock.now() + 3 * MINUTE
    )

    samples = measured.scrape()
    assert samples["due_items"]["sessions",] == 1
    assert samples["due_items_oldest_age_seconds"] == {
        ("sessions",): 180,
        ("discards",): 0,
        ("cards",): 0,
        ("events",): 0,
        ("erasures",): 0,
    }


def test_the_metrics_count_the_work_that_waits_for_the_psp_of_each_merchant_account(
    measured: Measured,
) -> None:
    session = measured.installation.opened_session()
    measured.installation.provider.have(Trouble.BEFORE_IT_ACTED)
    measured.installation.settle(session.token_id)
    measured.installation.clock.advance(MINUTE)
    samples = measured.scrape()
    assert samples["unanswered_items"] == {(MERCHANT, FAKE): 1}
    assert samples["unanswered_items_oldest_age_seconds"] == {(MERCHANT, FAKE): 60}

    measured.installation.provider.recover()
    measured.installation.settle(session.token_id)
    assert not measured.scrape()["unanswered_items"]


def test_the_metrics_count_undelivered_events_by_endpoint(measured: Measured) -> None:
    endpoint = an_event_endpoint()
    with committed(measured.installation.storage) as unit:
        unit.event_endpoints.add(endpoint)
    measured.installation.stored_card()
    measured.installation.clock.advance(MINUTE)
    samples = measured.scrape()
    assert samples["pending_events"] == {(endpoint.endpoint_id,): 1}
    assert samples["pending_events_oldest_age_seconds"] == {(endpoint.endpoint_id,): 60}
    assert samples["failed_events"] == {(endpoint.endpoint_id,): 0}


def test_the_metrics_count_access_tokens_that_expire_soon(measured: Measured) -> None:
    for days in (13, 15):
        measured.installation.token_for(measured.installation.caller, ttl=timedelta(days=days))

    assert measured.scrape()["tokens_expiring"] == {(): 1}


def test_metrics_that_need_no_database_are_reported_during_a_database_outage(
    measured: Measured,
) -> None:
    assert measured.scrape()["database_up"] == {(): 1}
    measured.container.storage().close()
    measured.installation.database.unlink()

    samples = measured.scrape()
    assert samples["database_up"] == {(): 0}
    assert "due_items" not in samples
    assert samples["build_info"]


def test_metrics_that_need_no_database_are_reported_if_a_table_is_missing(
    measured: Measured,
) -> None:
    change_by_hand(measured.installation.storage, "DROP TABLE event_endpoints")

    samples = measured.scrape()
    assert samples["database_up"] == {(): 0}
    assert samples["build_info"]
