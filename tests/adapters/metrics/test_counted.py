from __future__ import annotations

from datetime import timedelta
from typing import Final

import pytest
from falcon import testing
from prometheus_client import CollectorRegistry

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.log import LinesOfSessions
from adapters.metrics.counted import MAX_CODES, CountedSessions, Counts
from adapters.psp_suite.samples import GUEST_ID
from domain.sessions.session_log import SessionStep, Step
from entrypoints.worker.reconcile import reconcile_until_idle
from tests.adapters.http.api import ACCOUNTS
from tests.adapters.metrics.conftest import Measured
from tests.builders import a_session
from tests.event_receiver import EventReceiver
from tests.installation import DECLINED_CARD, MERCHANT, MISMATCHING_CARD, OTHER_GOOD_CARD, Trouble

# Events may be sent to this machine.
pytestmark = pytest.mark.installed(CARDONFILE_EVENT_NETWORKS="127.0.0.0/8")

ROUTE: Final = "/api/v1/guests/{guest_id}/accounts"
REQUESTS: Final = "http_request_duration_seconds_count"


def test_requests_are_counted_by_their_route_template(measured: Measured) -> None:
    client = testing.TestClient(measured.container.app())
    client.simulate_get("/healthz")
    for path in (ACCOUNTS, ACCOUNTS, f"/nowhere/{GUEST_ID}"):
        client.simulate_get(path)

    assert measured.scrape()[REQUESTS] == {
        ("GET", "/healthz", "200"): 1,
        ("GET", ROUTE, "401"): 2,
        ("GET", "none", "404"): 1,
    }


def test_requests_with_unknown_http_methods_are_counted_together(measured: Measured) -> None:
    for number in range(3):
        # Not by a client, which checks the method.
        environ = testing.create_environ("/healthz", method=f"X{number}")
        measured.container.app()(environ, testing.StartResponseMock())

    assert {labels[0] for labels in measured.scrape()[REQUESTS]} == {"other"}


def test_failed_authentications_beyond_the_limit_are_counted(measured: Measured) -> None:
    client = testing.TestClient(measured.container.app())
    token = measured.installation.token_for(measured.installation.caller)
    measured.container.revoke_token()(token)
    for sent in (token, *["cof_" + "x" * 43] * 35):
        client.simulate_get(ACCOUNTS, headers={"Authorization": f"bearer {sent}"})
    client.simulate_get(ACCOUNTS)

    samples = measured.scrape()
    assert samples["authentication_failures_total"] == {
        ("revoked",): 1,
        ("unknown",): 35,
        ("missing",): 1,
    }
    assert samples[REQUESTS]["GET", ROUTE, "429"] == 7


def test_storing_a_card_records_the_time_since_the_card_was_typed(measured: Measured) -> None:
    session = measured.installation.session_with_card()
    measured.installation.clock.advance(timedelta(minutes=2))
    measured.container.settle_session()(session.token_id)

    samples = measured.scrape()
    assert samples["sessions_ended_total"] == {("card_stored", ""): 1}
    assert samples["card_storing_seconds_sum"] == {(FAKE,): 120}
    assert samples["card_storing_seconds_bucket"]["60.0", FAKE] == 0
    assert samples["card_storing_seconds_bucket"]["300.0", FAKE] == 1


def test_ended_sessions_are_counted_by_outcome(measured: Measured) -> None:
    measured.installation.configure(avs=True)
    address = {"address": "1 Main St", "country_code": "US", "zipcode": "98101"}
    refused = measured.installation.session_with_card(MISMATCHING_CARD, billing_info=address)
    measured.container.settle_session()(refused.token_id)
    cancelled, opened = (
        measured.installation.opened_session(billing_info=address) for _ in range(2)
    )
    measured.container.cancel_session()(
        measured.installation.caller, guest_id=GUEST_ID, token_id=cancelled.token_id
    )
    measured.installation.clock.advance(timedelta(hours=2))
    measured.container.settle_session()(opened.token_id)

    samples = measured.scrape()
    assert samples["sessions_ended_total"] == {
        ("card_refused", "incorrect_billing_address"): 1,
        ("session_expired", "cancelled"): 1,
        ("session_expired", "not_finished"): 1,
    }
    # The series exists before the first card, because an alert does not see growth in a series that
    # begins at 1.
    assert samples["card_storing_seconds_count"] == {(FAKE,): 0}


def test_a_session_that_ends_with_a_card_on_file_is_counted_as_ended() -> None:
    registry = CollectorRegistry()
    log = CountedSessions(LinesOfSessions(), Counts(registry))

    log(SessionStep(step=Step.CARD_USED, session=a_session()))

    labels = {"end": "card_on_file_used", "reason": ""}
    assert registry.get_sample_value("cardonfile_sessions_ended_total", labels) == 1


def test_declined_cards_are_counted_by_refusal_code(measured: Measured) -> None:
    session = measured.installation.opened_session()
    for _ in range(2):
        measured.installation.type_card(session, DECLINED_CARD)
    measured.container.settle_session()(session.token_id)

    # The PSP tells the code of the last card.
    declined = measured.scrape()["cards_declined_total"]
    assert declined == {("declined", FAKE): 1, ("unknown", FAKE): 1}


def test_the_number_of_distinct_refusal_codes_is_limited() -> None:
    registry = CollectorRegistry()
    log = CountedSessions(LinesOfSessions(), Counts(registry))
    session = a_session()
    for number in [*range(MAX_CODES + 5), 1]:
        log(SessionStep(step=Step.DECLINED, session=session, reason=f"code_{number}"))

    psp = session.configuration.provider
    counted = [
        registry.get_sample_value("cardonfile_cards_declined_total", {"psp": psp, "code": code})
        for code in ("code_1", "code_99", "code_100", "other")
    ]
    assert counted == [2, 1, None, 5]


@pytest.mark.parametrize(
    ("trouble", "result"),
    [(None, "ok"), (Trouble.BEFORE_IT_ACTED, "unavailable"), (Trouble.REFUSED, "refused")],
)
def test_calls_to_a_psp_are_counted_by_their_result(
    measured: Measured, trouble: Trouble | None, result: str
) -> None:
    session = measured.installation.session_with_card()
    if trouble is not None:
        measured.installation.provider.have(trouble)
    measured.container.settle_session()(session.token_id)

    counted = measured.scrape()["psp_call_duration_seconds_count"]
    assert counted == {(MERCHANT, "outcome", FAKE, result): 1}


def test_an_exception_in_a_psp_adapter_is_counted_as_a_fault(measured: Measured) -> None:
    session = measured.installation.session_with_card()

    def fail(_: str, __: str) -> None:
        raise KeyError("a bug")

    measured.installation.provider.before = fail
    with pytest.raises(KeyError):
        measured.container.settle_session()(session.token_id)

    counted = measured.scrape()["psp_call_duration_seconds_count"]
    assert counted == {(MERCHANT, "outcome", FAKE, "fault"): 1}


def test_delivery_attempts_of_events_are_counted_by_response(measured: Measured) -> None:
    with EventReceiver() as receiver:
        container = measured.container
        endpoint = container.add_event_endpoint()(url=receiver.url, types=["account.stored"])
        measured.installation.stored_card()
        for status in (503, 204):
            receiver.status = status
            reconcile_until_idle(measured.container)
            measured.installation.clock.advance(timedelta(hours=1))
    measured.installation.stored_card(OTHER_GOOD_CARD)
    reconcile_until_idle(measured.container)

    assert measured.scrape()["event_attempts_total"] == {
        (endpoint.endpoint_id, "5xx"): 1,
        (endpoint.endpoint_id, "2xx"): 1,
        (endpoint.endpoint_id, "no response"): 1,
    }


def test_an_error_in_the_metrics_does_not_stop_the_work_that_is_counted() -> None:
    class Faulty(Counts):
        def __init__(self) -> None:
            super().__init__(CollectorRegistry())
            # This fails as on a full disk with the files of several processes.
            self.request("a label is missing", 1.0)
            self.ended("a label is missing")

    log = CountedSessions(LinesOfSessions(), Faulty())

    log(SessionStep(step=Step.EXPIRED, session=a_session(), reason="not_finished"))


def test_waits_for_a_database_connection_are_counted(measured: Measured) -> None:
    measured.container.storage().check()

    waits = measured.scrape()["database_wait_seconds_count"]
    # The scrape itself also waits for a connection, but only after it has read these counts.
    assert waits == {(): 1}
