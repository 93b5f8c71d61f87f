"""Traces that OpenTelemetry writes and reads, as in clients and shops."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final
from urllib.parse import urlsplit

import pytest
from opentelemetry import trace
from opentelemetry.trace import NonRecordingSpan, SpanContext, TraceFlags
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from structlog.contextvars import merge_contextvars
from structlog.testing import capture_logs

from adapters.psp.http import HttpClient
from adapters.traces import TracesOfThreads, headers_of, trace_of
from domain.events.event import EventType
from domain.outside import Trace
from tests.adapters.events.conftest import a_sender, an_endpoint, an_event
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY, Api
from tests.installation import Installation
from tests.listening import ListeningServer, Request, running

TRACE_ID: Final = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT: Final = "00f067aa0ba902b7"
SENT: Final = f"00-{TRACE_ID}-{PARENT}-01"
OTHER: Final = f"00-{'9' * 32}-{PARENT}-00"


@pytest.fixture
def api(installation: Installation) -> Api:
    return Api(installation)


def inject() -> dict[str, str]:
    """Return the headers of a client's request in the trace."""
    headers: dict[str, str] = {}
    span = NonRecordingSpan(
        SpanContext(int(TRACE_ID, 16), 7, False, TraceFlags(TraceFlags.SAMPLED))
    )
    TraceContextTextMapPropagator().inject(headers, trace.set_span_in_context(span))
    return headers


def read(request: Request) -> SpanContext:
    """Return the trace that the next system finds in a request. It is not `is_valid` if absent."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    context = TraceContextTextMapPropagator().extract(headers)
    return trace.get_current_span(context).get_span_context()


@pytest.mark.parametrize(
    "sent",
    [
        *(SENT, SENT.replace("-01", "-00"), SENT.replace("-01", "-ff"), SENT.replace("00-", "cc-")),
        *(f"cc{SENT[2:]}-what-the-future-brings", f"cc{SENT[2:]}.", f"{SENT}-x", f"{SENT},{SENT}"),
        *("", "00", SENT.upper(), f"ff{SENT[2:]}", f"{SENT[:-1]}", "\uff10" + SENT[1:]),
        *(SENT.replace(TRACE_ID, "0" * 32), SENT.replace(PARENT, "0" * 16), SENT.replace("-", "_")),
    ],
)
def test_the_service_accepts_the_same_trace_headers_as_opentelemetry(sent: str) -> None:
    found = trace_of(sent)
    theirs = read(Request("GET", "/", {"traceparent": sent}, b""))

    assert (found is not None) is theirs.is_valid
    if found is not None:
        ours = read(Request("GET", "/", headers_of(found), b""))
        assert ours.trace_id == theirs.trace_id
        assert ours.span_id != theirs.span_id
        assert ours.trace_flags == theirs.trace_flags & TraceFlags.SAMPLED


def test_a_call_to_a_psp_continues_the_trace_of_the_request() -> None:
    with running(ListeningServer()) as psp:
        for found in (trace_of(SENT), None):
            with TracesOfThreads().following(found), HttpClient(psp.url) as client:
                client.send("GET", "/")
        traced, untraced = psp.requests

    assert f"{read(traced).trace_id:x}" == TRACE_ID
    assert read(traced).trace_flags.sampled
    assert "traceparent" not in untraced.headers


def test_each_delivery_attempt_of_an_event_continues_the_trace() -> None:
    with running(ListeningServer()) as receiver:
        for found in (trace_of(SENT), trace_of(SENT), None):
            event, endpoint = an_event(trace=found), an_endpoint(receiver.url)
            assert a_sender().send(event, endpoint, now=datetime.now(UTC)) == 200
    first, again, untraced = receiver.requests

    assert f"{read(first).trace_id:x}" == f"{read(again).trace_id:x}" == TRACE_ID
    assert read(first).span_id != read(again).span_id
    assert "traceparent" not in untraced.headers
    assert first.body == again.body == untraced.body


def test_the_trace_of_add_card_continues_until_the_card_is_stored(api: Api) -> None:
    installation, ours = api.installation, trace_of(SENT)
    installation.has_endpoint()
    asked: list[tuple[str, Trace | None]] = []
    installation.provider.before = lambda method, _: asked.append(
        (method, TracesOfThreads().current())
    )
    with capture_logs([merge_contextvars]) as lines:
        started = api.post(GOOD_BODY, headers=inject())
        link = urlsplit(started.json["hosted_payment_uri"])
        # Not a caller's trace.
        api.browse(link.path, link.query, {"traceparent": OTHER})
        session = installation.session(started.json["token_id"])
        installation.type_card(session)
        installation.clock.advance(timedelta(minutes=10))
        installation.reconcile()

    assert session.trace == ours
    assert [(each.event.type, each.event.trace) for each in installation.deliveries()] == [
        (EventType.ACCOUNT_STORED, ours)
    ]
    assert set(asked) == {("start", ours), ("outcome", ours)}
    of_steps = {line["event"]: line["trace_id"] for line in lines if "session" in line}
    assert of_steps.keys() >= {"session_created", "page_made", "card_stored"}
    assert set(of_steps.values()) == {TRACE_ID}
    of_requests = [line["trace_id"] for line in lines if line["event"] == "request"]
    assert of_requests == [TRACE_ID, "9" * 32]
    assert TracesOfThreads().current() is None


def test_an_event_carries_the_trace_of_the_request_that_caused_it(api: Api) -> None:
    installation = api.installation
    installation.has_endpoint()
    account = installation.stored_card()
    for headers in ({"traceparent": SENT}, {}):
        path = f"{ACCOUNTS}/{account.account_id}"
        assert api.send("DELETE", path, headers=headers).status_code in (200, 404)

    traces = {each.event.type: each.event.trace for each in installation.deliveries()}
    assert traces == {
        EventType.ACCOUNT_STORED: None,
        EventType.ACCOUNT_REMOVED: trace_of(SENT),
    }


def test_a_malformed_trace_id_is_not_logged(api: Api) -> None:
    with capture_logs([merge_contextvars]) as lines:
        api.send("GET", ACCOUNTS, headers={"traceparent": f"00-{'4242' * 8}\nx-{PARENT}-01"})
        api.send("GET", ACCOUNTS, headers={"traceparent": SENT}, authenticated=False)
        api.send("GET", ACCOUNTS)

    requests = [line for line in lines if line["event"] == "request"]
    assert [line.get("trace_id") for line in requests] == [None, TRACE_ID, None]
