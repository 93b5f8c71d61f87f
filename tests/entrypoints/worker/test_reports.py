from __future__ import annotations

from datetime import timedelta

from structlog.testing import capture_logs

from adapters.psp_suite.samples import NOW
from domain.errors import ServiceUnavailable
from domain.events.deliver_event import ENDPOINT_IS_OFF, Attempt, EndpointState
from entrypoints.worker.reports import CardTestingLog, EndpointLog, WorkLog
from tests.builders import CENTER_ID, a_refused_card, an_event_delivery
from tests.databases import committed
from tests.installation import DECLINED_CARD, Installation


def test_work_that_keeps_failing_is_logged_at_most_once_a_minute() -> None:
    seconds = [0.0]
    work_log = WorkLog(lambda: seconds[0])
    told: list[tuple[float, str, object]] = []
    unavailable = ServiceUnavailable()
    unavailable.__cause__ = OSError("/srv/cards.db: disk I/O error")
    with capture_logs() as lines:
        # For 200 seconds one reconciler fails each second, beside one that has nothing to write.
        for seconds[0] in map(float, range(600)):
            if seconds[0] < 200:
                work_log.failed("sessions", unavailable)
            if seconds[0] >= 310:
                work_log.failed("events", ZeroDivisionError())
            if seconds[0] % 20 == 0:
                work_log.succeeded("sessions", "events", "discards")
            new = lines[len(told) :]
            told += [(seconds[0], line["event"], line["work"]) for line in new]

    assert told == [
        (0, "reconciler_without_storage", "sessions"),
        (300, "reconciler_storage_back", ["sessions"]),
        (360, "reconciler_fault", "events"),
    ]
    assert lines[0]["cause"] == "/srv/cards.db: disk I/O error"


def test_each_outage_or_recovery_of_an_endpoint_is_logged_once() -> None:
    away = Attempt(an_event_delivery().refused("500", NOW), EndpointState.AWAY)
    back = Attempt(an_event_delivery().delivered("200", NOW), EndpointState.TAKES_EVENTS)
    seconds = [0.0]
    note_attempt = EndpointLog(lambda: seconds[0])
    with capture_logs() as lines:
        for attempt in (back, away, away, back, back):
            note_attempt(attempt)
        # Then the endpoint fails and works in turn for a minute, and fails at the end.
        for seconds[0] in map(float, range(1, 60)):
            note_attempt(away)
            note_attempt(back)
        seconds[0] = 60.0
        note_attempt(away)
    assert [line["event"] for line in lines] == [
        "event_endpoint_away",
        "event_endpoint_back",
        "event_endpoint_away",
    ]


def test_failed_deliveries_that_need_an_operator_are_logged() -> None:
    given_up = Attempt(an_event_delivery().failed_for_good("500", NOW), EndpointState.AWAY)
    gone = Attempt(an_event_delivery().failed_for_good("410", NOW), EndpointState.GONE)
    off = Attempt(an_event_delivery().failed_for_good(ENDPOINT_IS_OFF, NOW), EndpointState.OFF)
    note_attempt = EndpointLog()
    with capture_logs() as lines:
        for attempt in (given_up, gone, off):
            note_attempt(attempt)

    assert [(line["event"], line["log_level"]) for line in lines] == [
        ("event_not_delivered", "error"),
        ("event_endpoint_disabled", "error"),
    ]


# Shows S23.
def test_a_center_with_unusually_many_refused_cards_is_logged_once_in_24_hours(
    installation: Installation,
) -> None:
    def ten_cards_are_refused() -> None:
        for _ in range(2):
            session = installation.opened_session()
            for _ in range(5):
                installation.type_card(session, DECLINED_CARD)
            installation.settle(session.token_id)

    find = CardTestingLog(installation.container.find_card_testing(), installation.clock)
    logs = []

    def look() -> None:
        with capture_logs() as lines:
            find()
        logs.extend(lines)

    ten_cards_are_refused()
    look()
    assert logs == []
    ten_cards_are_refused()
    look()
    ten_cards_are_refused()
    look()
    installation.clock.advance(timedelta(hours=24))
    ten_cards_are_refused()
    ten_cards_are_refused()
    look()

    told = [(line["event"], line["log_level"], line["center_id"]) for line in logs]
    assert told == [("card_testing_suspected", "warning", CENTER_ID)] * 2
    assert [(line["refused_cards"], line["sessions"]) for line in logs] == [(20, 4)] * 2


def test_a_center_is_logged_again_if_it_was_logged_while_the_clock_was_ahead(
    installation: Installation,
) -> None:
    look = CardTestingLog(installation.container.find_card_testing(), installation.clock)
    with capture_logs() as logs:
        for jump in (timedelta(days=365), timedelta(days=-365)):
            installation.clock.advance(jump)
            with committed(installation.storage) as unit:
                unit.refused_cards.add(
                    a_refused_card(
                        number=number,
                        attempt=1 + (jump.days > 0),
                        refused_at=installation.clock.now(),
                    )
                    for number in range(20)
                )
            look()
    assert [line["event"] for line in logs] == ["card_testing_suspected"] * 2
