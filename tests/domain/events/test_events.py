from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest

from adapters.events.payload import examples
from adapters.psp_suite.samples import GUEST_ID, NOW
from domain.cards import notice_expiry
from domain.cards.account import Account
from domain.cards.notice_expiry import MAX_PER_UNIT
from domain.centers.center import CenterNotFound
from domain.errors import EventNotFound, InvalidField
from domain.events.add_event_endpoint import TooManyEndpoints
from domain.events.deliver_event import ENDPOINT_IS_OFF, ENDPOINT_IS_UNREADABLE, EndpointState
from domain.events.event import (
    ENDPOINT_TYPES,
    JITTER,
    LONGEST_WAIT,
    MAX_ENDPOINTS,
    WAITS,
    CardSummary,
    DeliveryStatus,
    Event,
    EventEndpoint,
    EventType,
)
from domain.events.find_endpoint import EndpointNotFound
from domain.psps.card import Funding
from domain.retries import CLOCKS_DIFFER_BY, LEASE
from domain.sessions.session import CardSession
from tests.builders import CENTER_ID, OTHER_CENTER_ID, an_account, an_event_delivery
from tests.databases import change_by_hand
from tests.event_receiver import EventReceiver
from tests.installation import DECLINED_CARD, MISMATCHING_CARD, OTHER_GOOD_CARD, Installation

MONTH, WEEK = ["expires_in_30_days"], ["expires_in_7_days"]
SUMMARY: Final = CardSummary(
    card_logo="visa",
    last_four="4242",
    expiry_on="09/31",
    funding=Funding.CREDIT,
    issuer_country="US",
    authenticated=False,
)


class Receiving(Installation):
    """An installation with an endpoint for all events. `receiver` stores what arrives there."""

    def __init__(self, folder: Path, receiver: EventReceiver) -> None:
        super().__init__(folder, CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")
        self.receiver = receiver
        self.endpoint = self.has_endpoint(receiver.url)

    def event(self, wanted: EventType = EventType.ACCOUNT_STORED) -> Event:
        """Return the only event of a type."""
        (event,) = [each.event for each in self.deliveries() if each.event.type is wanted]
        return event


@pytest.fixture
def installation(tmp_path: Path) -> Iterator[Receiving]:
    with EventReceiver() as receiver, closing(Receiving(tmp_path, receiver)) as installed:
        yield installed


def added(
    installation: Installation, url: str, *types: str, centers: Sequence[str] | None = None
) -> EventEndpoint:
    return installation.container.add_event_endpoint()(
        url=url, types=types or ENDPOINT_TYPES, centers=centers
    )


class TestEventsOfCards:
    def test_storing_renewing_or_removing_a_card_sends_an_event(
        self, installation: Receiving
    ) -> None:
        account = installation.stored_card(reference="order-1")

        event = installation.event()
        assert event == Event(
            event_id=event.event_id,
            type=EventType.ACCOUNT_STORED,
            occurred_at=installation.clock.now(),
            guest_id=GUEST_ID,
            center_id=CENTER_ID,
            token_id=account.token_id,
            account_id=account.account_id,
            status="active",
            card=SUMMARY,
            language="en",
            reference="order-1",
            live=False,
        )
        session = installation.returned_session(expiry=(1, 2034))
        event = installation.event(EventType.ACCOUNT_RENEWED)
        assert (event.account_id, event.token_id) == (account.account_id, session.token_id)
        assert event.card == replace(SUMMARY, expiry_on="01/34")
        installation.remove_card(account)
        assert installation.event(EventType.ACCOUNT_REMOVED).status == "removed"

    def test_refusing_a_card_sends_an_event(self, installation: Receiving) -> None:
        account = installation.stored_card()
        session = installation.session_with_card()
        installation.return_to_shop(session)

        event = installation.event(EventType.SESSION_FAILED)
        assert (event.token_id, event.status) == (session.token_id, "failed")
        assert event.reason == "payment_method_already_exists"
        assert (event.account_id, event.existing_account_id) == (None, account.account_id)
        assert event.live is False

    @pytest.mark.parametrize(
        ("begin", "is_cancelled", "reason"),
        [
            (Installation.add_card, False, "not_finished"),
            (Installation.opened_session, False, "not_finished"),
            (Installation.opened_session, True, "cancelled"),
        ],
    )
    def test_a_session_that_ends_without_a_card_sends_an_event(
        self,
        installation: Receiving,
        begin: Callable[..., CardSession],
        is_cancelled: bool,
        reason: str,
    ) -> None:
        session = begin(installation, reference="order-1")
        if is_cancelled:
            installation.cancel_session(session)
        installation.clock.advance(timedelta(hours=2))
        installation.reconcile()

        event = installation.event(EventType.SESSION_EXPIRED)
        assert event.token_id == session.token_id
        assert (event.reason, event.reference) == (reason, "order-1")

    def test_the_event_about_a_declined_card_contains_the_refusal_code(
        self, installation: Receiving
    ) -> None:
        session = installation.session_with_card(DECLINED_CARD)
        for _ in range(2):
            installation.settle(session.token_id)
        for _ in range(2):
            installation.type_card(session, DECLINED_CARD)
        installation.settle(session.token_id)

        (first, *late) = [each.event for each in installation.deliveries()]
        assert first.type is EventType.SESSION_CARD_DECLINED
        assert (first.status, first.reason) == ("open", "declined")
        # The PSP reports only the code of the last card.
        assert sorted(str(each.reason) for each in late) == ["None", "declined"]

    def test_an_endpoint_receives_only_the_event_types_that_it_subscribed_to(
        self, installation: Receiving
    ) -> None:
        installation.has_other_center()
        other = added(installation, "https://a.example", "account.stored", centers=[CENTER_ID])

        stored = installation.removed_card()
        installation.stored_card(center_id=OTHER_CENTER_ID)

        taken = [
            it.event for it in installation.deliveries() if it.endpoint_id == other.endpoint_id
        ]
        assert [(each.type, each.account_id) for each in taken] == [
            (EventType.ACCOUNT_STORED, stored.account_id)
        ]


class TestDelivery:
    # Shows I10, F42.
    def test_a_delivery_is_tried_ten_times_in_three_days(self, installation: Receiving) -> None:
        receiver = installation.receiver
        receiver.status = 500
        installation.stored_card()
        started_at, times = installation.clock.now(), []
        while (due_at := installation.deliveries()[0].due_at) is not None:
            installation.clock.advance(max(due_at - installation.clock.now(), timedelta(0)))
            times.append(installation.clock.now() - started_at)
            installation.reconcile()

        assert len(times) == len(receiver.received) == 10
        assert times[0] == timedelta(0)
        assert timedelta(days=2, hours=12) < times[-1] < timedelta(days=3, hours=12)
        assert len(receiver.times) == 1
        assert len({each.body for each in receiver.received}) == 1
        (failed,) = installation.deliveries(failed=True)
        assert (failed.status, failed.last_result) == (DeliveryStatus.FAILED, "500")
        assert failed.attempted_at == installation.clock.now()
        installation.container.replay_event()(failed.event.event_id)
        (again,) = installation.deliveries()
        assert (again.status, again.attempts) == (DeliveryStatus.PENDING, 0)
        assert again.due_at == installation.clock.now()

    # Shows I10, F45.
    def test_a_delivery_is_taken_over_from_a_dead_process(self, installation: Receiving) -> None:
        installation.stored_card()
        deliver = installation.container.deliver_event()
        taken = deliver.take()
        assert deliver.take() is None
        installation.clock.advance(LEASE)
        installation.reconcile()
        assert len(installation.receiver.received) == 1

        assert taken is not None
        deliver(taken)
        assert len(installation.receiver.received) == 1

    def test_an_event_replayed_during_its_delivery_is_resent(self, installation: Receiving) -> None:
        installation.stored_card()
        deliver, replay = (
            installation.container.deliver_event(),
            installation.container.replay_event(),
        )
        taken = deliver.take()
        assert taken is not None
        installation.before_next_write(lambda: replay(taken.event_id))

        deliver(taken)
        installation.reconcile()

        assert installation.receiver.times == {taken.event_id: 2}

    def test_deliveries_that_failed_together_are_retried_at_different_times(self) -> None:
        tries = [an_event_delivery(number).refused("500", NOW).due_at for number in range(20)]
        assert tries[1] == an_event_delivery(1).refused("500", NOW).due_at
        waits = [(due_at - NOW) / WAITS[0] for due_at in tries if due_at]
        assert len(set(waits)) == 20
        assert 1 - JITTER <= min(waits) < 1 - JITTER / 2
        assert 1 + JITTER / 2 < max(waits) <= 1 + JITTER
        last = [an_event_delivery(number, attempts=len(WAITS) - 1) for number in range(20)]
        longest = [due_at - NOW for each in last if (due_at := each.refused("500", NOW).due_at)]
        # No wait is mistaken for a jump of the clock. `latest_due` allows for two clocks that differ.
        assert max(WAITS) + CLOCKS_DIFFER_BY < max(longest) <= LONGEST_WAIT

    def test_an_unreadable_delivery_does_not_stop_other_deliveries(
        self, installation: Receiving
    ) -> None:
        installation.stored_card()
        change_by_hand(
            installation.storage,
            "UPDATE event_deliveries SET event = replace(event, 'account.stored', 'account.sold')",
        )
        installation.clock.advance(timedelta(seconds=1))
        installation.stored_card(OTHER_GOOD_CARD)

        assert len(installation.reconcile().faults) == 1
        (received,) = installation.receiver.received
        assert received.content["data"]["card"]["last_four"] == "4444"

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
    def test_a_delivery_records_the_result_of_its_last_attempt(
        self, installation: Receiving, answer: int | str, state: EndpointState, result: str
    ) -> None:
        installation.stored_card()
        if isinstance(answer, int):
            installation.receiver.status = answer
        elif answer == "closed":
            change_by_hand(
                installation.storage, "UPDATE event_endpoints SET url = 'http://127.0.0.1:1/'"
            )
        elif answer == "removed":
            installation.container.remove_event_endpoint()(installation.endpoint.endpoint_id)
        else:
            change_by_hand(installation.storage, "UPDATE event_endpoints SET secrets = '{}'")
        deliver = installation.container.deliver_event()
        taken = deliver.take()
        assert taken is not None
        installation.clock.advance(timedelta(seconds=1))

        attempt = deliver(taken)

        assert attempt is not None
        assert attempt.endpoint is state
        (noted,) = installation.deliveries()
        assert (noted.last_result, noted.attempted_at) == (result, installation.clock.now())

    # Shows F44.
    def test_an_endpoint_that_responds_410_receives_no_more_events(
        self, installation: Receiving
    ) -> None:
        receiver = installation.receiver
        receiver.status = 410
        installation.removed_card()
        installation.stored_card(OTHER_GOOD_CARD)
        roll, rolled = installation.container.roll_event_secret(), []
        receiver.before = lambda _: rolled.append(roll(installation.endpoint.endpoint_id))

        assert installation.reconcile().jobs["events"] == 3
        (listed,) = installation.event_endpoints()
        assert not listed.is_active
        # Switching the endpoint off keeps a secret that was rolled during the delivery.
        assert listed.secrets == rolled[0].secrets
        installation.stored_card(MISMATCHING_CARD)
        installation.clock.advance(timedelta(days=1))
        installation.reconcile()
        assert len(receiver.received) == 1
        assert len(installation.deliveries()) == 3


class TestReplay:
    # Shows I10, F42.
    def test_a_replay_reaches_endpoints_that_were_added_after_the_event(
        self, installation: Receiving
    ) -> None:
        installation.stored_card()
        installation.reconcile()
        event_id = installation.event().event_id
        with EventReceiver() as later:
            added(installation, later.url)
            assert installation.container.replay_event()(event_id) == 2
            installation.reconcile()
            assert later.times == {event_id: 1}
        assert installation.receiver.times == {event_id: 2}

    def test_a_replay_skips_endpoints_that_do_not_receive_the_event(
        self, installation: Receiving
    ) -> None:
        installation.has_other_center()
        added(installation, "https://elsewhere.example", centers=[OTHER_CENTER_ID])
        added(installation, "https://removals.example", "account.removed")
        installation.stored_card()

        assert installation.container.replay_event()(installation.event().event_id) == 1
        assert len(installation.deliveries()) == 1

    def test_a_replay_from_a_given_time_omits_earlier_events(self, installation: Receiving) -> None:
        installation.stored_card()
        installation.clock.advance(timedelta(hours=1))
        since = installation.clock.now()
        installation.stored_card(OTHER_GOOD_CARD)
        installation.reconcile()

        assert installation.container.replay_events_since()(since) == (1, 1)
        installation.reconcile()
        assert list(installation.receiver.times.values()) == [1, 2]

    def test_a_replay_may_be_limited_to_one_endpoint(self, installation: Receiving) -> None:
        since = installation.clock.now()
        installation.stored_card()
        later = added(installation, "https://later.example").endpoint_id
        replay = installation.container.replay_events_since()

        assert replay(since, endpoint_id=later) == (1, 1)
        due = {each.endpoint_id for each in installation.deliveries() if each.due_at}
        assert due == {later, installation.endpoint.endpoint_id}
        with pytest.raises(EndpointNotFound):
            replay(since, endpoint_id=CENTER_ID)

    def test_a_replay_of_many_events_uses_several_units_of_work(
        self, installation: Receiving, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("domain.events.replay_event.EVENTS_AT_ONCE", 1)
        since = installation.clock.now()
        installation.stored_card()
        installation.stored_card(OTHER_GOOD_CARD)
        change_by_hand(
            installation.storage,
            "UPDATE event_deliveries SET event = '{}' WHERE event_id = :event_id",
            event_id=installation.deliveries()[0].event.event_id,
        )

        assert installation.container.replay_events_since()(since) == (2, 1)

    def test_replaying_an_unknown_event_is_refused(self, installation: Receiving) -> None:
        with pytest.raises(EventNotFound):
            installation.container.replay_event()("evt_1")


class TestExpiry:
    """The cards in these tests expire in September 2031, so their last day is the 30th."""

    @pytest.fixture
    def account(self, installation: Receiving) -> Account:
        return installation.stored_card()

    def noticed(self, installation: Receiving, day: datetime) -> list[str | None]:
        """Look for expiring cards twice on this day. Return the reasons of all events so far."""
        installation.clock.advance(day - installation.clock.now())
        installation.read_cards()
        for _ in range(2):
            installation.container.notice_expiry()()
        of_expiry = [
            each.event
            for each in installation.deliveries()
            if each.event.type is EventType.ACCOUNT_EXPIRING
        ]
        return [each.reason for each in reversed(of_expiry)]

    @pytest.mark.parametrize(
        "looks",
        [
            [
                *(("08-30T23:59Z", []), ("08-31T00:00Z", MONTH), ("09-22T23:59Z", MONTH)),
                *(("09-23T00:00Z", [*MONTH, *WEEK]), ("10-01T00:00Z", [*MONTH, *WEEK])),
            ],
            [("09-30T23:59Z", WEEK), ("10-01T00:00Z", WEEK)],
            [("10-01T00:00Z", [])],
        ],
        ids=["on time", "late", "too late"],
    )
    def test_an_expiry_event_is_sent_30_days_before_a_card_expires_then_7_days_before(
        self, installation: Receiving, account: Account, looks: list[tuple[str, list[str]]]
    ) -> None:
        for time, reasons in looks:
            assert self.noticed(installation, datetime.fromisoformat(f"2031-{time}")) == reasons

    # Shows F46.
    def test_unreadable_accounts_do_not_prevent_expiry_events_for_other_accounts(
        self, installation: Receiving, account: Account
    ) -> None:
        due = {"expiry_notice_at": account.created_at}
        installation.add_accounts(*(an_account(number, **due) for number in range(MAX_PER_UNIT)))
        change_by_hand(
            installation.storage,
            f"UPDATE payment_accounts SET source = 99 WHERE account_id <> '{account.account_id}'",
        )
        assert self.noticed(installation, datetime(2031, 8, 31, tzinfo=UTC)) == []
        assert self.noticed(installation, datetime(2031, 9, 3, tzinfo=UTC)) == MONTH

    def test_expiry_events_are_sent_in_batches_so_that_other_events_do_not_wait(
        self, installation: Receiving, account: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notice_expiry, "MAX_UNITS", 1)
        due = {"expiry_notice_at": account.expiry_notice_at}
        installation.add_accounts(*(an_account(number, **due) for number in range(MAX_PER_UNIT)))
        installation.clock.advance(datetime(2031, 8, 31, tzinfo=UTC) - installation.clock.now())
        notice = installation.container.notice_expiry()

        assert notice()
        with installation.storage.read() as reading:
            assert reading.accounts.is_expiry_notice_due(installation.clock.now())
        assert notice()
        with installation.storage.read() as reading:
            assert not reading.accounts.is_expiry_notice_due(installation.clock.now())
        assert not notice()

    def test_the_expiry_event_about_a_recently_refreshed_card_is_sent_immediately(
        self, installation: Receiving, account: Account
    ) -> None:
        day = datetime(2031, 8, 31, tzinfo=UTC)
        self.noticed(installation, day - timedelta(days=5))
        current = installation.account(account.account_id)
        installation.put_account(
            replace(current, read_at=day - timedelta(days=4), due_at=day + timedelta(days=9))
        )
        assert self.noticed(installation, day) == MONTH

    @pytest.mark.parametrize("as_older_releases_did", [None, {}, {"due_at": None}])
    def test_no_expiry_event_is_sent_for_a_removed_card(
        self,
        installation: Receiving,
        account: Account,
        as_older_releases_did: dict[str, Any] | None,  # fields of any type
    ) -> None:
        installation.remove_card(account)
        if as_older_releases_did is not None:
            changes = {"removed_at": account.created_at, **as_older_releases_did}
            installation.put_account(replace(account, **changes))
        assert self.noticed(installation, datetime(2031, 9, 29, tzinfo=UTC)) == []
        assert installation.account(account.account_id).due_at is None

    def test_a_card_that_must_be_refreshed_first_does_not_delay_other_expiry_events(
        self, installation: Receiving, account: Account, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(notice_expiry, "MAX_UNITS", 1)
        day = datetime(2031, 8, 31, tzinfo=UTC)
        other = installation.stored_card(OTHER_GOOD_CARD)
        installation.put_account(replace(account, expiry_notice_at=day - timedelta(days=1)))
        installation.put_account(replace(other, read_at=day))
        installation.clock.advance(day - installation.clock.now())

        installation.container.notice_expiry()()

        told = installation.event(EventType.ACCOUNT_EXPIRING)
        assert told.account_id == other.account_id

    def test_a_card_stored_in_its_last_month_causes_only_one_expiry_event(
        self, installation: Receiving
    ) -> None:
        installation.clock.advance(datetime(2031, 9, 10, tzinfo=UTC) - installation.clock.now())
        installation.stored_card()
        assert self.noticed(installation, datetime(2031, 9, 11, tzinfo=UTC)) == []
        assert self.noticed(installation, datetime(2031, 9, 29, tzinfo=UTC)) == WEEK


class TestEndpoints:
    def test_updating_an_endpoint_changes_the_event_types_that_it_receives(
        self, installation: Receiving
    ) -> None:
        update, endpoint = installation.container.update_event_endpoint(), installation.endpoint
        updated = update(endpoint.endpoint_id, types=["session.failed"])

        assert updated == replace(endpoint, types=(EventType.SESSION_FAILED,))
        installation.stored_card()
        assert not installation.deliveries()
        # Nobody can subscribe to test events.
        with pytest.raises(InvalidField):
            update(endpoint.endpoint_id, types=["test"])

    def test_a_test_event_is_sent_once_to_any_endpoint(self, installation: Receiving) -> None:
        receiver, send = installation.receiver, installation.container.send_test_event()
        for receiver.status in (204, 500):
            assert send(installation.endpoint.endpoint_id) == receiver.status
        first, second = receiver.received

        example = msgspec.to_builtins(examples()[EventType.TEST])
        own = {"id": first.event_id, "timestamp": "2026-11-20T12:00:00Z"}
        assert first.content == example | own
        assert first.headers["webhook-signature"].startswith("v1,")
        assert first.event_id != second.event_id
        assert not installation.deliveries()

    # Shows S25.
    def test_the_old_secret_also_signs_for_a_day_after_a_new_secret_is_issued(
        self, installation: Receiving
    ) -> None:
        old, now = installation.endpoint, installation.clock.now()
        rolled = installation.container.roll_event_secret()(old.endpoint_id).secrets

        assert rolled.current != old.secrets.current
        day = timedelta(hours=24)
        assert rolled.at(now + day - timedelta.resolution) == (rolled.current, old.secrets.current)
        assert rolled.at(now + day) == (rolled.current,)
        assert [each.secrets for each in installation.event_endpoints()] == [rolled]

    # Shows S25.
    def test_the_repr_of_an_endpoint_hides_its_secrets(self, installation: Receiving) -> None:
        endpoint = installation.endpoint
        assert endpoint.secrets.current not in f"{endpoint} {endpoint.secrets}"

    # Shows S24.
    @pytest.mark.parametrize(
        "url",
        [
            *("http://shop.example/e", "ftp://shop.example/e", "myapp://e", "shop.example/e", ""),
            *("https:///e", "https://shop.example:0/e", "https://shop.example/e#top"),
            *("https://user:pass@shop.example/e", "https://shop.example/a b"),
            *("https://2130706433/", "https://0x7f.1/"),
        ],
    )
    def test_the_address_of_an_endpoint_must_be_a_plain_https_address(
        self, tmp_path: Path, url: str
    ) -> None:
        public = Installation(
            tmp_path, base_url="https://cards.example", CARDONFILE_ALLOW_FAKE_PSP="1"
        )
        with pytest.raises(InvalidField) as refused:
            added(public, url)
        assert refused.value.field == "url"
        assert public.event_endpoints() == ()
        public.close()

    def test_an_address_has_one_endpoint_at_a_time(self, installation: Receiving) -> None:
        endpoint = installation.endpoint
        with pytest.raises(InvalidField):
            added(installation, endpoint.url)
        installation.container.remove_event_endpoint()(endpoint.endpoint_id)
        again = added(installation, endpoint.url)
        assert [*installation.event_endpoints()] == [again]

    def test_an_endpoint_subscribed_to_types_of_a_newer_release_still_receives_events(
        self, installation: Receiving
    ) -> None:
        change_by_hand(
            installation.storage,
            "UPDATE event_endpoints SET types = replace(types, 'session.failed', 'account.sold')",
        )
        installation.stored_card()
        installation.reconcile()

        assert installation.receiver.types == ["account.stored"]

    # Shows F46.
    def test_an_unreadable_endpoint_does_not_stop_deliveries_to_other_endpoints(
        self, installation: Receiving
    ) -> None:
        unreadable = added(installation, "https://other.example").endpoint_id
        installation.stored_card()
        change_by_hand(
            installation.storage,
            f"UPDATE event_endpoints SET secrets = '{{}}' WHERE endpoint_id = '{unreadable}'",
        )
        installation.stored_card(OTHER_GOOD_CARD)
        installation.reconcile()

        assert installation.receiver.types == ["account.stored"] * 2
        (waiting,) = [each for each in installation.deliveries() if each.endpoint_id == unreadable]
        assert waiting.status is DeliveryStatus.PENDING
        assert waiting.last_result == ENDPOINT_IS_UNREADABLE

    def test_at_most_50_endpoints_can_be_added(self, installation: Receiving) -> None:
        for number in range(MAX_ENDPOINTS - 1):
            added(installation, f"https://shop.example/{number}")
        with pytest.raises(TooManyEndpoints):
            added(installation, "https://shop.example/one-more")

    def test_an_endpoint_for_an_unknown_center_is_refused(self, installation: Receiving) -> None:
        with pytest.raises(CenterNotFound):
            added(installation, "https://shop.example", centers=[OTHER_CENTER_ID])

    def test_a_removed_or_unknown_endpoint_cannot_be_changed(self, installation: Receiving) -> None:
        remove = installation.container.remove_event_endpoint()
        remove(installation.endpoint.endpoint_id)
        for unknown in (installation.endpoint.endpoint_id, OTHER_CENTER_ID, "x"):
            with pytest.raises(EndpointNotFound):
                remove(unknown)
            with pytest.raises(EndpointNotFound):
                installation.container.roll_event_secret()(unknown)
