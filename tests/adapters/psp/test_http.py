from __future__ import annotations

import socket
import threading
import traceback
from contextlib import suppress
from datetime import timedelta
from types import SimpleNamespace
from typing import Any, Final

import msgspec
import pytest
from typing_extensions import override

from adapters import outbound_http
from adapters.psp import http
from adapters.psp.http import (
    MAX_RESPONSE_BYTES,
    Gone,
    HttpClient,
    JsonApi,
    Response,
    RetryPolicy,
    retry_after,
)
from adapters.psp.settings import is_https_or_loopback
from domain.psps.payment_provider import (
    FailureDetails,
    NotFound,
    ProviderRefused,
    ProviderUnavailable,
)
from tests.listening import (
    Act,
    Handler,
    ListeningServer,
    break_off,
    drip_body,
    drip_head,
    drip_interim_responses,
    fall_silent,
    respond_and_hang_up,
    responding,
)
from tests.waiting import LIMIT_SECONDS

HURRIED: Final = RetryPolicy(total_seconds=0.3, connect_seconds=0.3, pause_seconds=0)
"""For calls without a response."""
CALM: Final = RetryPolicy(
    total_seconds=LIMIT_SECONDS, connect_seconds=LIMIT_SECONDS, pause_seconds=0
)
"""For calls with a response, also on a busy machine."""
ONCE: Final = RetryPolicy(total_seconds=LIMIT_SECONDS, connect_seconds=LIMIT_SECONDS, tries=1)
NO_FAMILY: Final = 255
"""An address family that no machine has."""


class Page(msgspec.Struct):
    id: str


PAGE: Final = msgspec.json.Decoder(Page)
AN_ERROR: Final = b'{"error": {"code": "page_over", "message": "zoe@guests.example is unknown"}}'


def no_response(
    url: str, retry_policy: RetryPolicy = CALM, method: str = "GET", body: bytes | None = None
) -> FailureDetails:
    """Send a request that must end without a response. Return the details of the failure."""
    with (
        HttpClient(url, retry_policy=retry_policy) as client,
        pytest.raises(ProviderUnavailable) as raised,
    ):
        client.send(method, "/", body=body)
    return raised.value.details


class TestDeadline:
    # Shows F21.
    @pytest.mark.parametrize("act", [drip_head, drip_body, drip_interim_responses, fall_silent])
    def test_a_request_whose_response_is_slow_or_missing_ends_at_the_deadline(
        self, psp: ListeningServer, act: Act
    ) -> None:
        psp.acts = [act]

        assert no_response(psp.url, HURRIED) == FailureDetails(error="TimeoutError")

    def test_a_request_that_the_server_does_not_read_ends_at_the_deadline(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            address = f"127.0.0.1:{listening.getsockname()[1]}"
            # Over https, the server does not even answer the handshake.
            assert no_response(f"https://{address}", HURRIED).error == "TimeoutError"
            late = no_response(f"http://{address}", HURRIED, "POST", bytes(2**26))
            assert late.error == "TimeoutError"

    def test_all_requests_from_one_client_share_one_deadline(
        self, psp: ListeningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        seconds = [0.0]
        clock = SimpleNamespace(monotonic=lambda: seconds[0])
        monkeypatch.setattr(outbound_http, "time", clock)
        with HttpClient(psp.url, retry_policy=CALM) as client:
            client.send("GET", "/first")
            seconds[0] = CALM.total_seconds
            with pytest.raises(ProviderUnavailable):
                client.send("GET", "/second")

        assert [request.path for request in psp.requests] == ["/first"]

    def test_a_client_does_not_wait_for_a_retry_that_would_be_after_the_deadline(
        self, psp: ListeningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        psp.acts = [break_off]
        pauses: list[float] = []
        monkeypatch.setattr(http, "time", SimpleNamespace(sleep=pauses.append))

        no_response(
            psp.url, RetryPolicy(total_seconds=LIMIT_SECONDS, pause_seconds=2 * LIMIT_SECONDS)
        )

        assert pauses == []


class TestRetries:
    @pytest.mark.parametrize("act", [break_off, responding(503), responding(409)])
    def test_a_request_is_sent_again_unchanged_after_a_temporary_fault(
        self, psp: ListeningServer, act: Act
    ) -> None:
        psp.acts = [act, act, responding(200)]
        with HttpClient(psp.url, retry_policy=CALM) as client:
            response = client.send("POST", "/pages", headers={"Idempotency-Key": "1"}, body=b"{}")

        assert response.status == 200
        first, second, third = psp.requests
        assert first == second == third

    @pytest.mark.parametrize(
        ("act", "tries", "requests"),
        [
            (responding(503), 3, 3),
            (responding(503), 1, 1),
            (responding(400), 3, 1),
            (responding(429), 3, 1),
            (responding(503, Retry_After="30"), 3, 1),
        ],
    )
    def test_the_response_to_the_last_retry_is_returned(
        self, psp: ListeningServer, act: Act, tries: int, requests: int
    ) -> None:
        psp.acts = [*[act] * requests, responding(200)]
        policy = RetryPolicy(total_seconds=LIMIT_SECONDS, pause_seconds=0, tries=tries)
        with HttpClient(psp.url, retry_policy=policy) as client:
            assert client.send("GET", "/").status >= 400

        assert len(psp.requests) == requests


class TestConnection:
    def test_all_requests_from_a_client_share_one_connection(self, psp: ListeningServer) -> None:
        with HttpClient(psp.url, retry_policy=CALM) as client:
            client.send("GET", "/")
            client.send("GET", "/")

        assert psp.connections == 1

    def test_a_connection_closed_by_the_psp_is_replaced(self, psp: ListeningServer) -> None:
        psp.acts = [respond_and_hang_up, responding(200, b"here")]
        with HttpClient(psp.url, retry_policy=CALM) as client:
            client.send("GET", "/")
            assert client.send("GET", "/").body == b"here"

    def test_an_ip_address_of_an_unsupported_address_family_is_skipped(
        self, psp: ListeningServer, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        look_up = socket.getaddrinfo

        def with_another(*args: Any, **options: Any) -> list[Any]:  # Any: as in the socket module
            found = look_up(*args, **options)
            return [(NO_FAMILY, *found[0][1:]), *found]

        monkeypatch.setattr(socket, "getaddrinfo", with_another)
        with HttpClient(psp.url, retry_policy=CALM) as client:
            assert client.send("GET", "/").status == 200

    def test_a_refused_connection_is_reported_with_the_type_of_the_error(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            url = f"http://127.0.0.1:{taken.getsockname()[1]}"

        assert no_response(url).error == "ConnectionRefusedError"

    def test_a_request_to_an_https_url_is_not_sent_without_tls(self, psp: ListeningServer) -> None:
        assert no_response(psp.url.replace("http:", "https:")).error == "SSLError"
        assert psp.requests == []


class TestResponse:
    def test_a_response_over_one_mebibyte_is_refused(self, psp: ListeningServer) -> None:
        psp.acts = [responding(200, b"x" * size) for size in range(2**20, 2**20 + 2)]
        with HttpClient(psp.url, retry_policy=ONCE) as client:
            assert len(client.send("GET", "/").body) == MAX_RESPONSE_BYTES

        assert no_response(psp.url, ONCE).error == "HTTPException"

    def test_the_client_for_psps_does_not_follow_redirects(self, psp: ListeningServer) -> None:
        psp.acts = [responding(302, Location="/elsewhere")]
        with HttpClient(psp.url, retry_policy=CALM) as client:
            response = client.send("GET", "/")

        assert (response.status, response.headers["location"]) == (302, "/elsewhere")
        assert [request.path for request in psp.requests] == ["/"]

    @pytest.mark.parametrize(
        "sent",
        [
            b"HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{}",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n",
        ],
        ids=["interim", "cut", "cut chunk"],
    )
    def test_an_incomplete_response_from_a_psp_is_refused(
        self, psp: ListeningServer, sent: bytes
    ) -> None:
        def act(handler: Handler) -> None:
            handler.wfile.write(sent)
            handler.hang_up()

        psp.acts = [act]

        no_response(psp.url)

    def test_the_client_stops_reading_an_endless_response(self, psp: ListeningServer) -> None:
        sent = 0

        def act(handler: Handler) -> None:
            nonlocal sent
            handler.hang_up()
            # A chunk of -1 bytes: http.client reads to the end of the stream.
            handler.wfile.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n")
            with suppress(OSError):
                for _ in range(64):
                    handler.wfile.write(b"x" * MAX_RESPONSE_BYTES)
                    sent += MAX_RESPONSE_BYTES

        psp.acts = [act]

        no_response(psp.url, ONCE)

        assert sent < 32 * MAX_RESPONSE_BYTES

    def test_an_unsolicited_response_is_not_mistaken_for_the_response_to_the_next_request(
        self, psp: ListeningServer
    ) -> None:
        was_read, was_sent = threading.Event(), threading.Event()

        def twice(handler: Handler) -> None:
            handler.respond(200, b"first")
            was_read.wait(LIMIT_SECONDS)
            handler.respond(200, b"unsolicited")
            was_sent.set()

        psp.acts = [twice, responding(200, b"second")]
        with HttpClient(psp.url, retry_policy=CALM) as client:
            assert client.send("GET", "/1").body == b"first"
            was_read.set()
            assert was_sent.wait(LIMIT_SECONDS)
            assert client.send("GET", "/2").body == b"second"


def test_requests_are_sent_to_the_base_url_with_the_configured_headers(
    psp: ListeningServer,
) -> None:
    with HttpClient(f"{psp.url}/v1/", headers={"X-Key": "1"}, retry_policy=CALM) as client:
        client.send("POST", "/pages?live=1", headers={"X-More": "2"}, body=b"body")

    (request,) = psp.requests
    assert (request.method, request.path, request.body) == ("POST", "/v1/pages?live=1", b"body")
    assert (request.headers["x-key"], request.headers["x-more"]) == ("1", "2")


def test_the_error_about_a_key_that_a_header_cannot_contain_does_not_show_the_key(
    psp: ListeningServer,
) -> None:
    headers = {"Authorization": "Bearer a secret\n"}
    with (
        HttpClient(psp.url, headers=headers, retry_policy=CALM) as client,
        pytest.raises(ProviderUnavailable) as raised,
    ):
        client.send("GET", "/")

    assert raised.value.details == FailureDetails(error="ValueError")
    assert "secret" not in "".join(traceback.format_exception(raised.value))


@pytest.mark.parametrize(
    ("url", "is_fine"),
    [
        ("https://api.acme.example/v1", True),
        ("http://127.0.0.1:8000", True),
        ("http://acme.localhost", True),
        ("http://api.acme.example", False),
        ("http://127.0.0.1.acme.example", False),
        ("http://[", False),
        ("api.acme.example", False),
    ],
)
def test_the_client_accepts_a_url_without_https_only_for_a_loopback_address(
    url: str, *, is_fine: bool
) -> None:
    assert is_https_or_loopback(url) is is_fine
    if not is_fine:
        with pytest.raises(ValueError, match="https"):
            HttpClient(url)


class TestJsonApi:
    def test_a_json_api_returns_the_decoded_response(self, psp: ListeningServer) -> None:
        psp.acts = [responding(201, b'{"id": "page_1", "more": [1]}')]
        with JsonApi(psp.url, headers={"Authorization": "key"}, retry_policy=CALM) as api:
            page = api.ask(PAGE, "POST", "/pages", json={"a": 1}, headers={"Idempotency-Key": "k"})

        (request,) = psp.requests
        assert page == Page("page_1")
        assert request.body == b'{"a":1}'
        assert request.headers["content-type"] == request.headers["accept"] == "application/json"
        assert request.headers["authorization"] == "key"
        assert request.headers["idempotency-key"] == "k"

    def test_a_json_api_can_send_a_form(self, psp: ListeningServer) -> None:
        psp.acts = [responding(200, b'{"id": "page_1"}')]
        with JsonApi(psp.url, retry_policy=CALM) as api:
            api.ask(PAGE, "POST", "/pages", form={"name": "Zoë & Co"})

        (request,) = psp.requests
        assert request.body == b"name=Zo%C3%AB+%26+Co"
        assert request.headers["content-type"] == "application/x-www-form-urlencoded"

    @pytest.mark.parametrize(
        ("status", "body", "expected"),
        [
            (404, AN_ERROR, NotFound),
            (410, AN_ERROR, Gone),
            (400, AN_ERROR, ProviderRefused),
            (422, AN_ERROR, ProviderRefused),
            (400, b"", ProviderUnavailable),
            (404, b"<html>not here</html>", ProviderUnavailable),
            (410, b"[]", ProviderUnavailable),
            (404, b"[" * 9999, ProviderUnavailable),
            *(
                (status, AN_ERROR, ProviderUnavailable)
                for status in (302, 304, 401, 402, 403, 409, 429, 500)
            ),
        ],
    )
    def test_an_error_status_from_a_json_api_raises_an_exception_that_the_port_declares(
        self, psp: ListeningServer, status: int, body: bytes, expected: type[Exception]
    ) -> None:
        psp.acts = [responding(status, b"" if status == 304 else body)]

        failure = failure_of(psp)

        assert type(failure) is expected
        assert failure.details.status == status

    @pytest.mark.parametrize(
        "body", [b"", b'{"id": 1}', b'{"id": "zoe@guests.example', b"[" * 99999]
    )
    def test_the_error_about_an_unreadable_response_does_not_quote_the_response(
        self, psp: ListeningServer, body: bytes
    ) -> None:
        psp.acts = [responding(200, body)]

        failure = failure_of(psp)

        assert isinstance(failure, ProviderUnavailable)
        assert failure.details.status == 200
        assert failure.details.error is not None
        assert failure.__context__ is None
        assert "zoe" not in "".join(traceback.format_exception(failure))

    def test_an_adapter_can_treat_a_response_with_status_200_as_an_error(
        self, psp: ListeningServer
    ) -> None:
        class Always200(JsonApi):
            @override
            def failure(self, response: Response) -> ProviderUnavailable | ProviderRefused | None:
                gone = NotFound("gone") if response.body == AN_ERROR else None
                return gone or super().failure(response)

        psp.acts = [responding(200, AN_ERROR), responding(200, b""), responding(400, b"")]

        with Always200(psp.url, retry_policy=CALM) as api:
            with pytest.raises(NotFound):
                api.call("GET", "/pages/1")
            assert api.call("GET", "/pages/1").status == 200
            with pytest.raises(ProviderUnavailable):
                api.call("GET", "/pages/1")

    def test_a_failure_reports_the_error_code_of_the_api(self, psp: ListeningServer) -> None:
        psp.acts = [responding(429, AN_ERROR, Retry_After="7")]
        limited = failure_of(psp)
        assert isinstance(limited, ProviderUnavailable)
        assert limited.retry_after == timedelta(seconds=7)
        psp.acts = [responding(422, AN_ERROR, X_Request_Id="req_1")]

        details = failure_of(psp, "error", "code").details

        assert details == FailureDetails(status=422, code="page_over", request_id="req_1")

    @pytest.mark.parametrize("key", [("error", "message"), ("error",), ("error", "code", "x")])
    def test_the_details_of_a_failure_omit_values_that_are_not_single_words(
        self, psp: ListeningServer, key: tuple[str, ...]
    ) -> None:
        psp.acts = [responding(400, AN_ERROR, X_Request_Id="Zoe <zoe@guests.example>")]

        assert failure_of(psp, *key).details == FailureDetails(status=400)


def failure_of(psp: ListeningServer, *error_code: str) -> ProviderUnavailable | ProviderRefused:
    """Request a page, which must fail, and return the failure."""
    with (
        JsonApi(
            psp.url, request_id_header="X-Request-Id", error_code=error_code, retry_policy=CALM
        ) as api,
        pytest.raises((ProviderUnavailable, ProviderRefused)) as raised,
    ):
        api.ask(PAGE, "GET", "/pages/1")
    assert isinstance(raised.value, ProviderUnavailable | ProviderRefused)
    return raised.value


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("0", 0),
        ("120", 120),
        ("-1", None),
        ("9" * 30, None),
        ("Fri, 31 Dec 1999 23:59:59 GMT", None),
        ("٣", None),
    ],
)
def test_the_retry_after_header_is_parsed_as_a_number_of_seconds(
    value: str, seconds: int | None
) -> None:
    expected = None if seconds is None else timedelta(seconds=seconds)
    assert retry_after({"retry-after": value}) == expected
