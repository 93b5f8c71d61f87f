"""The stand-in server simulates only the faults that a test sets."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from adapters.psp_suite.stand_in import (
    Request,
    Response,
    StandInServer,
    Trouble,
    drip,
    drop_call,
    drop_response,
    html_response,
    json_response,
    lose_call,
    redirect,
    respond_with,
)
from tests.waiting import LIMIT_SECONDS


class Counter:
    """A PSP that counts."""

    def __init__(self) -> None:
        self.count = 0
        self.seen: list[Request] = []

    def respond(self, request: Request) -> Response:
        self.seen.append(request)
        if not request.path.startswith("/v1/"):
            return html_response("<h1>Pay</h1>")
        self.count += 1
        return json_response({"count": self.count}, 201, {"Request-Id": "7"})


@pytest.fixture
def counter() -> Counter:
    return Counter()


@pytest.fixture
def server(counter: Counter) -> Iterator[StandInServer]:
    with closing(StandInServer(counter.respond, api="/v1/")) as server:
        yield server


def ask(
    url: str, method: str = "POST", body: bytes | None = None, seconds: float = LIMIT_SECONDS
) -> tuple[int, bytes, http.client.HTTPMessage]:
    target = urlsplit(url)
    with closing(
        http.client.HTTPConnection(str(target.hostname), target.port, timeout=seconds)
    ) as connection:
        connection.request(method, f"{target.path}?{target.query}".rstrip("?"), body)
        response = connection.getresponse()
        return response.status, response.read(), response.headers


def test_the_stand_in_server_passes_on_every_part_of_a_request_or_response(
    server: StandInServer, counter: Counter
) -> None:
    status, body, headers = ask(f"{server.url}/v1/pages?a=1&b", "PUT", b"\x00\xff")

    assert (status, body) == (201, b'{\n  "count": 1\n}')
    assert (headers["Content-Type"], headers["Request-Id"]) == ("application/json", "7")
    (request,) = counter.seen
    assert (request.method, request.path, request.query) == ("PUT", "/v1/pages", "a=1&b")
    assert request.body == b"\x00\xff"
    assert request.headers["content-length"] == "2"


def test_a_simulated_fault_lasts_until_the_stand_in_server_recovers(server: StandInServer) -> None:
    server.have(respond_with(Response(503)))
    assert [ask(f"{server.url}/v1/pages")[0] for _ in range(2)] == [503, 503]
    assert ask(f"{server.url}/pay/1", "GET")[1] == b"<h1>Pay</h1>", "a browser's request is no call"
    server.recover()
    assert ask(f"{server.url}/v1/pages")[0] == 201
    assert server.calls == ["POST /v1/pages"] * 3


def test_a_simulated_fault_affects_only_the_given_calls(server: StandInServer) -> None:
    server.have(respond_with(Response(429)), "^POST ", from_call=2, times=1)

    statuses = [
        ask(f"{server.url}/v1/pages", method)[0] for method in ("POST", "GET", "POST", "POST")
    ]

    assert statuses == [201, 201, 429, 201]


@pytest.mark.parametrize(("trouble", "done"), [(drop_call, 0), (drop_response, 1)])
def test_a_call_whose_connection_is_dropped_gets_no_response(
    server: StandInServer, counter: Counter, trouble: Trouble, done: int
) -> None:
    server.have(trouble)

    with pytest.raises(http.client.RemoteDisconnected):
        ask(f"{server.url}/v1/pages")

    assert counter.count == done


def test_a_call_that_the_stand_in_server_loses_gets_no_response(
    server: StandInServer, counter: Counter
) -> None:
    server.have(lose_call)

    with pytest.raises(TimeoutError):
        ask(f"{server.url}/v1/pages", seconds=0.1)

    assert counter.count == 0


def test_a_slow_response_is_sent_completely_in_pieces(server: StandInServer) -> None:
    server.have(drip(0.05))
    sent: list[bytes] = []

    server.handle(
        Request(method="POST", path="/v1/pages", query="", headers={}, body=b""), sent.append
    )

    assert len(sent) == 5
    assert b"".join(sent).endswith(b'\r\n\r\n{\n  "count": 1\n}')


def test_a_redirected_call_is_handled_if_the_client_follows_the_redirect(
    server: StandInServer, counter: Counter
) -> None:
    server.have(redirect)

    status, _, headers = ask(f"{server.url}/v1/pages", body=b"x")

    assert (status, counter.count) == (302, 0)
    assert ask(headers["Location"], "GET")[:2] == (201, b'{\n  "count": 1\n}')
    assert counter.seen[0].body == b"x"
