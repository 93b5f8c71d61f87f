from __future__ import annotations

from datetime import timedelta

from adapters.psp_suite.samples import OTHER_GUEST_ID
from domain.events.event import DeliveryCounts
from domain.identifiers import MerchantAccount, PspAccount
from domain.retries import Waiting
from domain.worker.heartbeat import WorkerState
from tests.builders import CENTER_ID, PROVIDER, a_guest, a_worker, an_account, an_event_endpoint
from tests.databases import committed
from tests.installation import MERCHANT, Installation, Trouble

MINUTE = timedelta(minutes=1)


def test_the_status_of_a_new_installation_shows_no_waiting_work(installation: Installation) -> None:
    status = installation.container.read_status()()

    assert status.is_worker_missing
    assert set(status.due.values()) == {Waiting()}
    assert not status.unanswered
    assert not status.endpoints
    assert not status.expiring


def test_a_worker_counts_as_missing_one_minute_after_its_last_heartbeat(
    installation: Installation,
) -> None:
    leave = installation.container.leave_heartbeat()
    leave(a_worker(1))
    installation.clock.advance(MINUTE)
    leave(a_worker(2), WorkerState.STOPPED)
    assert not installation.container.read_status()().is_worker_missing

    installation.clock.advance(timedelta(microseconds=1))
    status = installation.container.read_status()()
    assert [each.is_missing for each in status.workers] == [True, False]
    assert not status.is_worker_missing
    installation.clock.advance(MINUTE)
    assert installation.container.read_status()().is_worker_missing


def test_the_status_shows_a_waiting_erasure_until_it_is_done(installation: Installation) -> None:
    installation.has_guest(a_guest(id=OTHER_GUEST_ID))
    erased_at = installation.clock.now()
    installation.erase_guest(OTHER_GUEST_ID)
    installation.container.finish_erasures()()
    assert installation.container.read_status()().due["erasures"] == (1, erased_at)

    installation.clock.advance(timedelta(hours=1))
    installation.container.finish_erasures()()
    assert installation.container.read_status()().due["erasures"] == (0, None)


def test_the_status_shows_due_work_of_each_kind(installation: Installation) -> None:
    with committed(installation.storage) as unit:
        unit.event_endpoints.add(an_event_endpoint())
        unit.accounts.add(an_account(guest_id=OTHER_GUEST_ID, due_at=installation.clock.now()))
    installation.session_with_card()
    installation.removed_card()
    told_at = installation.clock.now()
    installation.erase_guest()
    installation.clock.advance(timedelta(hours=1))
    status = installation.container.read_status()()

    assert {kind: waiting.items for kind, waiting in status.due.items()} == {
        "sessions": 1,
        "discards": 1,
        "cards": 1,
        "events": 1,
        "erasures": 1,
    }
    assert all(
        waiting.since and waiting.since <= told_at + MINUTE for waiting in status.due.values()
    )
    assert status.endpoints == [
        (an_event_endpoint(), DeliveryCounts(pending=1, pending_since=told_at))
    ]


def test_the_status_counts_unanswered_calls_by_merchant_account(installation: Installation) -> None:
    due = an_account(
        guest_id=OTHER_GUEST_ID, merchant_account=MERCHANT, due_at=installation.clock.now()
    )
    with committed(installation.storage) as unit:
        unit.accounts.add(due)
    account = installation.stored_card()
    installation.opened_session()
    began = installation.clock.now()
    installation.remove_card(account)
    installation.configure(CENTER_ID, merchant_account=MerchantAccount("other"))
    installation.provider.have(Trouble.BEFORE_IT_ACTED)
    installation.reconcile()
    installation.clock.advance(MINUTE)
    installation.reconcile()

    status = installation.container.read_status()()
    assert status.unanswered == {PspAccount(PROVIDER, MERCHANT): Waiting(3, began)}


def test_the_status_lists_tokens_that_expire_within_14_days(installation: Installation) -> None:
    caller, day = installation.a_caller(), timedelta(days=1)
    later, soon = (installation.token_for(caller, ttl=ttl) for ttl in (15 * day, 14 * day))

    assert [each.prefix for each in installation.container.read_status()().expiring] == [soon[:12]]
    installation.clock.advance(day)
    found = [each.prefix for each in installation.container.read_status()().expiring]
    assert found == [soon[:12], later[:12]]
