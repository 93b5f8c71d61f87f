from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from adapters.events.payload import examples
from adapters.psp_suite.samples import GUEST_ID, NOW
from domain.cards import notice_expiry
from domain.cards.account import Account
from domain.cards.notice_expiry import MAX_PER_UNIT
from domain.centers.center import CenterNotFound
from domain.errors import InvalidField
from domain.events.add_event_endpoint import TooManyEndpoints
from domain.events.deliver_event import ENDPOINT_IS_OFF, ENDPOINT_IS_UNREADABLE, EndpointState
from domain.events.event import (
    ENDPOINT_TYPES,
    JITTER,
    LONGEST_WAIT,
    MAX_ENDPOINTS,
    WAITS,
    DeliveryStatus,
    EventDelivery,
    EventEndpoint,
    EventType,
)
from domain.events.find_endpoint import EndpointNotFound
from domain.events.replay_event import EventNotFound
from domain.retries import CLOCKS_DIFFER_BY, LEASE
from tests.builders import (
    CENTER_ID,
    OTHER_CENTER_ID,
    a_center,
    an_account,
    an_event_delivery,
)
from tests.databases import change_by_hand
from tests.event_receiver import EventReceiver
from tests.installation import DECLINED_CARD, OTHER_GOOD_CARD, Installation, Trouble

ALL_TYPES = [each.value for each in ENDPOINT_TYPES]


@pytest.fixture
def receiver() -> Iterator[EventReceiver]:
    with EventReceiver() as endpoint:
        yield endpoint


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Installation]:
    installed = Installation(tmp_path, CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")
    yield installed
    installed.close()


@pytest.fixture
def endpoint(installation: Installation, receiver: EventReceiver) -> EventEndpoint:
    return added(installation, receiver.url)


def added(
    installation: Installation, url: str, *types: str, centers: Sequence[str] | None = None
) -> EventEndpoint:
    return installation.container.add_event_endpoint()(
        url=url, types=types or ALL_TYPES, centers=centers
    )


def deliveries(installation: Installation, *, failed: bool = False) -> Sequence[EventDelivery]:
    return installation.deliveries(failed=failed)


class TestWhatIsTold:
    def test_a_stored_card(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        account = installation.stored_card(reference="order-1")
        installation.reconcile()

        (request,) = receiver.received
        assert request.content == {
            "type": "account.stored",
            "timestamp": "2026-11-20T12:00:00Z",
            "data": {
                "guest_id": GUEST_ID,
                "center_id": CENTER_ID,
                "token_id": account.token_id,
                "account_id": account.account_id,
                "existing_account_id": None,
                "status": "active",
                "reason": None,
                "card": {"card_logo": "visa", "last_four": "4242", "expiry_on": "09/31"},
                "language": "en",
                "reference": "order-1",
                "live": False,
            },
        }

    def test_a_renewed_card_with_the_session_that_renewed_it(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        account = installation.stored_card()
        session = installation.opened_session()
        installation.type_card(session, expiry=(1, 2034))
        installation.return_to_shop(session)
        installation.reconcile()

        assert receiver.types == ["account.stored", "account.renewed"]
        renewed = receiver.received[1].content["data"]
        assert renewed["account_id"] == account.account_id
        assert renewed["token_id"] == session.token_id
        assert renewed["card"]["expiry_on"] == "01/34"

    def test_a_removed_card(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.removed_card()
        installation.reconcile()

        removed = next(each.content for each in receiver.received if "removed" in str(each.content))
        assert (removed["type"], removed["data"]["status"]) == ("account.removed", "removed")

    def test_a_session_whose_card_is_refused(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        account = installation.stored_card()
        session = installation.session_with_card()
        installation.return_to_shop(session)
        installation.reconcile()

        failed = receiver.received[-1].content
        assert (failed["type"], failed["data"]["status"]) == ("session.failed", "failed")
        assert failed["data"]["token_id"] == session.token_id
        assert failed["data"]["reason"] == "payment_method_already_exists"
        assert failed["data"]["existing_account_id"] == account.account_id
        assert failed["data"]["account_id"] is None
        assert failed["data"]["live"] is False

    @pytest.mark.parametrize("is_opened", [False, True])
    def test_a_session_that_ends_without_a_card(
        self,
        installation: Installation,
        receiver: EventReceiver,
        endpoint: EventEndpoint,
        is_opened: bool,
    ) -> None:
        start = installation.opened_session if is_opened else installation.add_card
        session = start(reference="order-1")
        installation.clock.advance(timedelta(hours=2))
        installation.reconcile()

        (expired,) = receiver.received
        assert expired.content["data"]["reference"] == "order-1"
        assert expired.content["type"] == "session.expired"
        assert expired.content["data"]["token_id"] == session.token_id
        assert expired.content["data"]["reason"] == "not_finished"

    def test_a_session_that_the_client_cancels(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        session = installation.opened_session()
        installation.use_cases.cancel_session(
            installation.caller, guest_id=GUEST_ID, token_id=session.token_id
        )
        installation.reconcile()

        (expired,) = receiver.received
        assert expired.content["type"] == "session.expired"
        assert expired.content["data"]["reason"] == "cancelled"

    def test_a_session_whose_page_the_psp_refuses_after_its_end(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        session = installation.add_card()
        installation.provider.have(Trouble.BEFORE_IT_ACTED, "start")
        with pytest.raises(Exception, match="timed out"):
            installation.open_page(session)
        installation.clock.advance(timedelta(hours=2))
        installation.provider.have(Trouble.REFUSED, "start")
        installation.reconcile()

        assert receiver.types == ["session.expired"]

    def test_a_declined_card_is_no_event_however_often_it_is_seen(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        session = installation.session_with_card(DECLINED_CARD)
        for _ in range(3):
            installation.settle(session.token_id)
        installation.reconcile()

        assert receiver.received == []

    def test_only_what_the_endpoint_takes(
        self, installation: Installation, receiver: EventReceiver
    ) -> None:
        installation.has_center(a_center(id=OTHER_CENTER_ID))
        installation.configure(OTHER_CENTER_ID)
        added(installation, receiver.url, "account.stored", centers=[OTHER_CENTER_ID])

        installation.removed_card()
        installation.stored_card(center_id=OTHER_CENTER_ID)

        (delivery,) = deliveries(installation)
        assert delivery.event.type is EventType.ACCOUNT_STORED
        assert delivery.event.center_id == OTHER_CENTER_ID


class TestDelivery:
    # Shows I10, F42.
    def test_is_tried_ten_times_in_three_days_under_one_id(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        receiver.status = 500
        installation.stored_card()
        started_at, times = installation.clock.now(), []
        while (due_at := deliveries(installation)[0].due_at) is not None:
            installation.clock.advance(max(due_at - installation.clock.now(), timedelta(0)))
            times.append(installation.clock.now() - started_at)
            installation.reconcile()

        assert len(times) == len(receiver.received) == 10
        assert times[0] == timedelta(0)
        assert timedelta(days=2, hours=12) < times[-1] < timedelta(days=3, hours=12)
        assert len(receiver.times) == 1
        assert len({each.body for each in receiver.received}) == 1
        stamps = [int(each.headers["webhook-timestamp"]) for each in receiver.received]
        assert [stamp - stamps[0] for stamp in stamps] == [int(t.total_seconds()) for t in times]
        assert len({each.headers["webhook-signature"] for each in receiver.received}) == 10
        (failed,) = deliveries(installation, failed=True)
        assert (failed.status, failed.last_result) == (DeliveryStatus.FAILED, "500")
        assert failed.attempted_at == installation.clock.now()
        installation.container.replay_event()(failed.event.event_id)
        assert deliveries(installation, failed=True) == ()

    def test_of_one_that_came_back_is_delivered_once(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        receiver.status = 503
        installation.stored_card()
        installation.reconcile()
        receiver.status = 200
        for _ in range(5):
            installation.clock.advance(timedelta(hours=1))
            installation.reconcile()

        assert len(receiver.received) == 2
        (delivery,) = deliveries(installation)
        assert (delivery.status, delivery.attempts) == (DeliveryStatus.DELIVERED, 2)
        assert deliveries(installation, failed=True) == ()

    # Shows I10, F45.
    def test_of_a_process_that_died_is_taken_over_after_its_lease(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.stored_card()
        deliver = installation.container.deliver_event()
        taken = deliver.take()
        assert deliver.take() is None
        installation.clock.advance(LEASE)
        installation.reconcile()
        assert len(receiver.received) == 1

        assert taken is not None
        deliver(taken)
        assert len(receiver.received) == 1

    def test_that_is_replayed_while_it_is_sent_is_sent_again(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.stored_card()
        deliver = installation.container.deliver_event()
        taken = deliver.take()
        assert taken is not None
        replay, event_id = installation.container.replay_event(), taken.event_id
        installation.before_next_write(lambda: replay(event_id))

        deliver(taken)
        installation.reconcile()

        assert receiver.times == {event_id: 2}

    def test_of_many_that_failed_at_once_are_not_tried_at_once(self) -> None:
        tries = [an_event_delivery(number).refused("500", NOW).due_at for number in range(20)]
        assert tries[1] == an_event_delivery(1).refused("500", NOW).due_at
        waits = [(due_at - NOW) / WAITS[0] for due_at in tries if due_at]
        assert len(set(waits)) == 20
        assert 1 - JITTER <= min(waits) < 1 - JITTER / 2
        assert 1 + JITTER / 2 < max(waits) <= 1 + JITTER

    def test_never_waits_so_long_that_a_clock_counts_as_wrong(self) -> None:
        last = [an_event_delivery(number, attempts=len(WAITS) - 1) for number in range(20)]
        waits = [due_at - NOW for each in last if (due_at := each.refused("500", NOW).due_at)]
        # Compared as `latest_due` does, which allows for a difference of two clocks.
        assert max(WAITS) + CLOCKS_DIFFER_BY < max(waits) <= LONGEST_WAIT

    def test_that_cannot_be_read_stops_no_other(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.stored_card()
        change_by_hand(
            installation.storage,
            "UPDATE event_deliveries SET event = replace(event, 'account.stored', 'account.sold')",
        )
        installation.clock.advance(timedelta(seconds=1))
        installation.stored_card(OTHER_GOOD_CARD)

        assert len(installation.reconcile().faults) == 1
        assert [each.content["data"]["card"]["last_four"] for each in receiver.received] == ["4444"]

    @pytest.mark.parametrize(
        ("answer", "state", "result"),
        [
            (204, EndpointState.TAKES_EVENTS, "204"),
            (500, EndpointState.AWAY, "500"),
            (410, EndpointState.GONE, "410"),
            ("closed", EndpointState.AWAY, "connection refused"),
            ("removed", EndpointState.OFF, ENDPOINT_IS_OFF),
            ("unreadable", EndpointState.AWAY, ENDPOINT_IS_UNREADABLE),
        ],
    )
    def test_notes_what_its_endpoint_did(
        self,
        installation: Installation,
        receiver: EventReceiver,
        endpoint: EventEndpoint,
        answer: int | str,
        state: EndpointState,
        result: str,
    ) -> None:
        installation.stored_card()
        if isinstance(answer, int):
            receiver.status = answer
        elif answer == "closed":
            change_by_hand(
                installation.storage, "UPDATE event_endpoints SET url = 'http://127.0.0.1:1/'"
            )
        elif answer == "removed":
            installation.container.remove_event_endpoint()(endpoint.endpoint_id)
        else:
            change_by_hand(installation.storage, "UPDATE event_endpoints SET secrets = '{}'")
        deliver = installation.container.deliver_event()
        taken = deliver.take()
        assert taken is not None
        installation.clock.advance(timedelta(seconds=1))

        attempt = deliver(taken)

        assert attempt is not None
        assert attempt.endpoint is state
        (noted,) = deliveries(installation)
        assert (noted.last_result, noted.attempted_at) == (result, installation.clock.now())

    # Shows F44.
    def test_ends_for_an_endpoint_that_is_gone(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        receiver.status = 410
        installation.stored_card()
        installation.opened_session()
        installation.reconcile()
        installation.clock.advance(timedelta(days=1))
        installation.reconcile()

        assert len(receiver.received) == 1
        (listed,) = installation.event_endpoints()
        assert not listed.is_active
        assert [each.event.type for each in deliveries(installation)] == ["account.stored"]

    def test_ends_in_the_same_round_for_all_events_to_an_endpoint_that_is_gone(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        receiver.status = 410
        installation.removed_card()
        installation.stored_card(OTHER_GOOD_CARD)

        assert installation.reconcile().jobs["events"] == 3
        assert len(receiver.received) == 1
        assert installation.reconcile().is_idle

    def test_ends_for_an_endpoint_that_is_gone_without_undoing_its_new_secret(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        receiver.status = 410
        installation.stored_card()
        roll, rolled = installation.container.roll_event_secret(), []
        receiver.before = lambda _: rolled.append(roll(endpoint.endpoint_id))
        installation.reconcile()

        (listed,) = installation.event_endpoints()
        assert not listed.is_active
        assert listed.secrets == rolled[0].secrets

    def test_ends_for_an_endpoint_that_is_removed(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.stored_card()
        installation.container.remove_event_endpoint()(endpoint.endpoint_id)
        installation.reconcile()

        assert receiver.received == []
        (delivery,) = deliveries(installation, failed=True)
        assert delivery.last_result == "endpoint disabled or removed"
        added(installation, receiver.url)

    def test_is_forgotten_after_thirty_days(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.stored_card()
        installation.reconcile()
        installation.clock.advance(timedelta(days=29, hours=23))
        installation.stored_card(OTHER_GOOD_CARD)
        installation.container.forget_old_records()()
        assert len(deliveries(installation)) == 2
        installation.clock.advance(timedelta(hours=2))
        installation.container.forget_old_records()()

        (left,) = deliveries(installation)
        assert left.status is DeliveryStatus.PENDING


class TestReplay:
    # Shows I10, F42.
    def test_sends_an_event_again_under_its_id_also_to_an_endpoint_added_later(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.stored_card()
        installation.reconcile()
        (delivery,) = deliveries(installation)
        with EventReceiver() as later:
            added(installation, later.url)
            assert installation.container.replay_event()(delivery.event.event_id) == 2
            installation.reconcile()
            assert later.times == {delivery.event.event_id: 1}
        assert receiver.times == {delivery.event.event_id: 2}

    def test_sends_nothing_to_an_endpoint_that_does_not_take_the_event(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.has_center(a_center(id=OTHER_CENTER_ID))
        added(installation, "https://elsewhere.example", centers=[OTHER_CENTER_ID])
        added(installation, "https://removals.example", "account.removed")
        installation.stored_card()
        (delivery,) = deliveries(installation)

        assert installation.container.replay_event()(delivery.event.event_id) == 1
        assert [each.endpoint_id for each in deliveries(installation)] == [endpoint.endpoint_id]

    def test_has_ten_attempts_of_its_own(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        receiver.status = 500
        installation.stored_card()
        for times in (10, 20):
            while (due_at := deliveries(installation)[0].due_at) is not None:
                installation.clock.advance(max(due_at - installation.clock.now(), timedelta(0)))
                installation.reconcile()
            assert len(receiver.received) == times
            installation.container.replay_event()(receiver.received[0].event_id)

    def test_since_some_time_sends_no_earlier_event(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        installation.stored_card()
        installation.clock.advance(timedelta(hours=1))
        since = installation.clock.now()
        installation.stored_card(OTHER_GOOD_CARD)
        installation.reconcile()

        assert installation.container.replay_events_since()(since) == (1, 1)
        installation.reconcile()
        assert list(receiver.times.values()) == [1, 2]

    def test_since_some_time_may_be_to_one_endpoint_only(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        since = installation.clock.now()
        installation.stored_card()
        installation.stored_card(OTHER_GOOD_CARD)
        installation.reconcile()
        with EventReceiver() as later:
            second = added(installation, later.url)
            replay = installation.container.replay_events_since()
            assert replay(since, endpoint_id=second.endpoint_id) == (2, 2)
            installation.reconcile()
            assert list(later.times.values()) == [1, 1]
        assert list(receiver.times.values()) == [1, 1]
        with pytest.raises(EndpointNotFound):
            replay(since, endpoint_id=CENTER_ID)

    def test_since_some_time_takes_several_units_of_work(
        self,
        installation: Installation,
        receiver: EventReceiver,
        endpoint: EventEndpoint,
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setattr("domain.events.replay_event.EVENTS_AT_ONCE", 1)
        since = installation.clock.now()
        installation.stored_card()
        installation.stored_card(OTHER_GOOD_CARD)
        first, _ = deliveries(installation)
        change_by_hand(
            installation.storage,
            f"UPDATE event_deliveries SET event = '{{}}' WHERE event_id = '{first.event.event_id}'",
        )

        assert installation.container.replay_events_since()(since) == (2, 1)

    def test_refuses_an_event_that_is_not_there(self, installation: Installation) -> None:
        with pytest.raises(EventNotFound):
            installation.container.replay_event()("evt_1")


class TestUpdate:
    def test_changes_what_an_endpoint_takes_from_then_on(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        updated = installation.container.update_event_endpoint()(
            endpoint.endpoint_id, types=["session.failed"]
        )
        assert updated == replace(endpoint, types=(EventType.SESSION_FAILED,))
        installation.stored_card()
        assert not deliveries(installation)

    def test_refuses_a_type_that_is_only_sent_on_request(
        self, installation: Installation, endpoint: EventEndpoint
    ) -> None:
        with pytest.raises(InvalidField):
            installation.container.update_event_endpoint()(endpoint.endpoint_id, types=["test"])


class TestTestEvent:
    def test_is_sent_once_to_an_endpoint_of_any_type(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        for receiver.status in (204, 500):
            sent = installation.container.send_test_event()(endpoint.endpoint_id)
            assert sent == receiver.status
        first, second = receiver.received

        body = json.loads(first.body)
        assert (body["type"], body["data"]["status"]) == ("test", "test")
        assert body["timestamp"] == "2026-11-20T12:00:00Z"
        example = msgspec.to_builtins(examples()[EventType.TEST])
        assert {**body, "timestamp": example["timestamp"]} == example
        assert first.headers["webhook-signature"].startswith("v1,")
        assert first.event_id != second.event_id
        assert not deliveries(installation)
        installation.reconcile()
        assert len(receiver.received) == 2


class TestSecrets:
    # Shows S25.
    def test_both_sign_for_a_day_after_one_was_rolled(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        rolled = installation.container.roll_event_secret()(endpoint.endpoint_id)
        assert rolled.secrets.current != endpoint.secrets.current
        installation.stored_card()
        installation.reconcile()
        installation.clock.advance(timedelta(hours=24))
        installation.container.replay_event()(receiver.received[0].event_id)
        installation.reconcile()

        signatures = [each.headers["webhook-signature"].split() for each in receiver.received]
        assert [len(each) for each in signatures] == [2, 1]

    # Shows S25.
    def test_are_in_no_text_of_an_endpoint(self, endpoint: EventEndpoint) -> None:
        assert endpoint.secrets.current not in f"{endpoint} {endpoint.secrets}"


class TestExpiry:
    """The cards in these tests expire in September 2031, so their last day is the 30th."""

    @pytest.fixture
    def account(self, installation: Installation, endpoint: EventEndpoint) -> Account:
        return installation.stored_card()

    def noticed(self, installation: Installation, day: datetime) -> list[str | None]:
        """Return the reasons of all notices so far, after two tries on this day."""
        installation.clock.advance(day - installation.clock.now())
        installation.read_cards()
        for _ in range(2):
            installation.container.notice_expiry()()
        of_expiry = [
            each.event
            for each in deliveries(installation)
            if each.event.type is EventType.ACCOUNT_EXPIRING
        ]
        return [each.reason for each in reversed(of_expiry)]

    def test_is_told_once_at_thirty_days_once_at_seven(
        self, installation: Installation, account: Account
    ) -> None:
        assert self.noticed(installation, datetime(2031, 8, 30, 23, 59, tzinfo=UTC)) == []
        month = ["expires_in_30_days"]
        assert self.noticed(installation, datetime(2031, 8, 31, tzinfo=UTC)) == month
        assert self.noticed(installation, datetime(2031, 9, 22, 23, 59, tzinfo=UTC)) == month
        both = [*month, "expires_in_7_days"]
        assert self.noticed(installation, datetime(2031, 9, 23, tzinfo=UTC)) == both
        assert self.noticed(installation, datetime(2031, 10, 1, tzinfo=UTC)) == both

    def test_is_told_late_if_no_worker_ran_but_not_after_the_last_day(
        self, installation: Installation, account: Account
    ) -> None:
        late = ["expires_in_7_days"]
        assert self.noticed(installation, datetime(2031, 9, 30, 23, 59, tzinfo=UTC)) == late
        assert self.noticed(installation, datetime(2031, 10, 1, tzinfo=UTC)) == late

    # Shows F46.
    def test_is_told_however_many_accounts_before_it_cannot_be_read(
        self, installation: Installation, account: Account
    ) -> None:
        with installation.storage.write() as unit:
            for number in range(MAX_PER_UNIT):
                unit.accounts.add(an_account(number, expiry_notice_at=account.created_at))
            unit.commit()
        change_by_hand(
            installation.storage,
            f"UPDATE payment_accounts SET source = 99 WHERE account_id <> '{account.account_id}'",
        )
        assert self.noticed(installation, datetime(2031, 8, 31, tzinfo=UTC)) == []
        month = ["expires_in_30_days"]
        assert self.noticed(installation, datetime(2031, 9, 3, tzinfo=UTC)) == month

    def test_is_told_of_some_cards_at_a_time_so_that_other_events_do_not_wait(
        self, installation: Installation, account: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notice_expiry, "MAX_UNITS", 1)
        with installation.storage.write() as unit:
            for number in range(MAX_PER_UNIT):
                unit.accounts.add(an_account(number, expiry_notice_at=account.expiry_notice_at))
            unit.commit()
        installation.clock.advance(datetime(2031, 8, 31, tzinfo=UTC) - installation.clock.now())
        notice = installation.container.notice_expiry()

        assert notice()
        with installation.storage.read() as reading:
            assert reading.accounts.is_expiry_notice_due(installation.clock.now())
        assert notice()
        with installation.storage.read() as reading:
            assert not reading.accounts.is_expiry_notice_due(installation.clock.now())
        assert not notice()

    def test_of_a_card_that_another_release_can_read_is_told_late(
        self, installation: Installation, account: Account
    ) -> None:
        source = "UPDATE payment_accounts SET source ="
        change_by_hand(installation.storage, f"{source} 99")
        assert self.noticed(installation, datetime(2031, 8, 31, tzinfo=UTC)) == []
        change_by_hand(installation.storage, f"{source} {account.source.value}")
        month = ["expires_in_30_days"]
        assert self.noticed(installation, datetime(2031, 9, 1, tzinfo=UTC)) == month

    def test_of_a_card_that_was_read_in_the_days_before_does_not_wait(
        self, installation: Installation, account: Account
    ) -> None:
        day = datetime(2031, 8, 31, tzinfo=UTC)
        self.noticed(installation, day - timedelta(days=5))
        with installation.storage.write() as unit:
            current = unit.accounts.get(account.account_id)
            assert current is not None
            unit.accounts.update(
                replace(current, read_at=day - timedelta(days=4), due_at=day + timedelta(days=9))
            )
            unit.commit()
        assert self.noticed(installation, day) == ["expires_in_30_days"]

    def test_of_an_expired_card_is_not_told(
        self, installation: Installation, account: Account
    ) -> None:
        assert self.noticed(installation, datetime(2031, 10, 1, tzinfo=UTC)) == []

    @pytest.mark.parametrize("as_older_releases_did", [None, {}, {"due_at": None}])
    def test_of_a_removed_card_is_not_told(
        self,
        installation: Installation,
        account: Account,
        as_older_releases_did: dict[str, Any] | None,  # fields of any type
    ) -> None:
        installation.use_cases.remove_account(
            installation.caller, guest_id=account.guest_id, account_id=account.account_id
        )
        if as_older_releases_did is not None:
            with installation.storage.write() as unit:
                unit.accounts.update(
                    replace(account, removed_at=account.created_at, **as_older_releases_did)
                )
                unit.commit()
        assert self.noticed(installation, datetime(2031, 9, 29, tzinfo=UTC)) == []
        assert installation.account(account.account_id).due_at is None

    def test_of_a_card_that_must_be_read_first_holds_up_no_other(
        self, installation: Installation, account: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notice_expiry, "MAX_UNITS", 1)
        day = datetime(2031, 8, 31, tzinfo=UTC)
        other = installation.stored_card(OTHER_GOOD_CARD)
        with installation.storage.write() as unit:
            unit.accounts.update(replace(account, expiry_notice_at=day - timedelta(days=1)))
            unit.accounts.update(replace(other, read_at=day))
            unit.commit()
        installation.clock.advance(day - installation.clock.now())

        installation.container.notice_expiry()()

        told = next(each.event for each in deliveries(installation))
        assert (told.type, told.account_id) == (EventType.ACCOUNT_EXPIRING, other.account_id)

    def test_of_a_card_stored_within_the_last_month_is_told_once(
        self, installation: Installation, endpoint: EventEndpoint
    ) -> None:
        installation.clock.advance(datetime(2031, 9, 10, tzinfo=UTC) - installation.clock.now())
        installation.stored_card()
        assert self.noticed(installation, datetime(2031, 9, 11, tzinfo=UTC)) == []
        late = ["expires_in_7_days"]
        assert self.noticed(installation, datetime(2031, 9, 29, tzinfo=UTC)) == late

    def test_of_a_renewed_card_counts_from_its_new_date(
        self, installation: Installation, account: Account
    ) -> None:
        session = installation.opened_session()
        installation.type_card(session, expiry=(1, 2034))
        installation.return_to_shop(session)
        assert self.noticed(installation, datetime(2031, 9, 29, tzinfo=UTC)) == []
        month = ["expires_in_30_days"]
        assert self.noticed(installation, datetime(2034, 1, 1, tzinfo=UTC)) == month


class TestEndpoints:
    # Shows S24.
    @pytest.mark.parametrize(
        "url",
        [
            "http://shop.example/events",
            "https://shop.example:0/events",
            "https://user:password@shop.example/events",
            "https://shop.example/events#top",
            "https:///events",
            "ftp://shop.example/events",
            "myapp://events",
            "shop.example/events",
            "https://shop.example/ev ents",
            "https://2130706433/events",
            "https://0x7f.1/events",
            "",
        ],
    )
    def test_must_be_a_plain_https_address(self, tmp_path: Path, url: str) -> None:
        public = Installation(
            tmp_path, base_url="https://cards.example", CARDONFILE_ALLOW_FAKE_PSP="1"
        )
        with pytest.raises(InvalidField) as refused:
            added(public, url)
        assert refused.value.field == "url"
        assert public.event_endpoints() == ()
        public.close()

    def test_are_added_again_after_their_removal_only(
        self, installation: Installation, endpoint: EventEndpoint
    ) -> None:
        with pytest.raises(InvalidField):
            added(installation, endpoint.url)
        installation.container.remove_event_endpoint()(endpoint.endpoint_id)
        again = added(installation, endpoint.url)
        assert [*installation.event_endpoints()] == [again]

    def test_may_take_types_of_a_newer_release(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        change_by_hand(
            installation.storage,
            "UPDATE event_endpoints SET types = replace(types, 'session.failed', 'account.sold')",
        )
        installation.stored_card()
        installation.reconcile()

        assert receiver.types == ["account.stored"]

    # Shows F46.
    def test_that_cannot_be_read_wait_without_stopping_others(
        self, installation: Installation, receiver: EventReceiver, endpoint: EventEndpoint
    ) -> None:
        unreadable = added(installation, "https://other.example").endpoint_id
        installation.stored_card()
        change_by_hand(
            installation.storage,
            f"UPDATE event_endpoints SET secrets = '{{}}' WHERE endpoint_id = '{unreadable}'",
        )
        installation.stored_card(OTHER_GOOD_CARD)
        installation.reconcile()

        assert receiver.types == ["account.stored"] * 2
        (waiting,) = [each for each in deliveries(installation) if each.endpoint_id == unreadable]
        assert waiting.status is DeliveryStatus.PENDING
        assert waiting.last_result == ENDPOINT_IS_UNREADABLE

    def test_are_fifty_at_most(self, installation: Installation) -> None:
        for number in range(MAX_ENDPOINTS):
            added(installation, f"https://shop.example/{number}")
        with pytest.raises(TooManyEndpoints):
            added(installation, "https://shop.example/one-more")

    def test_of_a_center_that_is_not_on_file_are_refused(self, installation: Installation) -> None:
        with pytest.raises(CenterNotFound):
            added(installation, "https://shop.example", centers=[OTHER_CENTER_ID])

    def test_that_are_removed_or_unknown_cannot_be_changed(
        self, installation: Installation, endpoint: EventEndpoint
    ) -> None:
        remove = installation.container.remove_event_endpoint()
        remove(endpoint.endpoint_id)
        for unknown in (endpoint.endpoint_id, OTHER_CENTER_ID, "x"):
            with pytest.raises(EndpointNotFound):
                remove(unknown)
            with pytest.raises(EndpointNotFound):
                installation.container.roll_event_secret()(unknown)
