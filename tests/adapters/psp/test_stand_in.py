"""The stand-in server makes the trouble that it is told to make, and no other."""

from __future__ import annotations

import http.client
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import pytest

from adapters.psp.stand_in import (
    Part,
    Request,
    Response,
    StandInServer,
    Trouble,
    change,
    drip,
    drop_call,
    drop_response,
    html_response,
    json_response,
    lose_call,
    lose_response,
    redirect,
    respond_with,
)


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
    url: str, method: str = "POST", body: bytes | None = None, seconds: float = 10
) -> tuple[int, bytes, http.client.HTTPMessage]:
    target = urlsplit(url)
    with closing(
        http.client.HTTPConnection(str(target.hostname), target.port, timeout=seconds)
    ) as connection:
        connection.request(method, f"{target.path}?{target.query}".rstrip("?"), body)
        response = connection.getresponse()
        return response.status, response.read(), response.headers


def test_a_request_arrives_whole_and_a_response_comes_whole(
    server: StandInServer, counter: Counter
) -> None:
    status, body, headers = ask(f"{server.url}/v1/pages?a=1&b", "PUT", b"\x00\xff")

    assert (status, body) == (201, b'{\n  "count": 1\n}')
    assert (headers["Content-Type"], headers["Request-Id"]) == ("application/json", "7")
    (request,) = counter.seen
    assert (request.method, request.path, request.query) == ("PUT", "/v1/pages", "a=1&b")
    assert request.body == b"\x00\xff"
    assert request.headers["content-length"] == "2"


def test_calls_of_the_adapter_are_kept_and_meet_trouble_alone(server: StandInServer) -> None:
    server.have(respond_with(Response(503)))

    assert ask(f"{server.url}/v1/pages")[0] == 503
    assert ask(f"{server.url}/pay/1", "GET")[1] == b"<h1>Pay</h1>"
    assert server.calls == ["POST /v1/pages"]


def test_trouble_begins_with_the_call_that_it_is_for_and_ends(server: StandInServer) -> None:
    server.have(respond_with(Response(429)), "^POST ", from_call=2, times=1)

    statuses = [
        ask(f"{server.url}/v1/pages", method)[0] for method in ("POST", "GET", "POST", "POST")
    ]

    assert statuses == [201, 201, 429, 201]


def test_it_lasts_until_the_server_recovers(server: StandInServer) -> None:
    server.have(respond_with(html_response("<html>Not found</html>", 404)))
    assert [ask(f"{server.url}/v1/pages")[0] for _ in range(2)] == [404, 404]

    server.recover()

    assert ask(f"{server.url}/v1/pages")[0] == 201


@pytest.mark.parametrize(("trouble", "done"), [(drop_call, 0), (drop_response, 1)])
def test_a_connection_that_breaks_brings_nothing(
    server: StandInServer, counter: Counter, trouble: Trouble, done: int
) -> None:
    server.have(trouble)

    with pytest.raises(http.client.RemoteDisconnected):
        ask(f"{server.url}/v1/pages")

    assert counter.count == done


@pytest.mark.parametrize(("trouble", "done"), [(lose_call, 0), (lose_response, 1)])
def test_silence_lasts_as_long_as_anybody_waits(
    server: StandInServer, counter: Counter, trouble: Trouble, done: int
) -> None:
    server.have(trouble)

    with pytest.raises(TimeoutError):
        ask(f"{server.url}/v1/pages", seconds=0.3)

    assert counter.count == done


@pytest.mark.parametrize("part", Part)
def test_a_response_that_drips_is_sound_and_never_keeps_a_reader_waiting_for_long(
    server: StandInServer, part: Part
) -> None:
    server.have(drip(1, part))
    begun_at = time.monotonic()

    status, body, _ = ask(f"{server.url}/v1/pages", seconds=0.5)

    assert (status, body) == (201, b'{\n  "count": 1\n}')
    assert time.monotonic() - begun_at >= 1


def test_a_long_body_drips_no_longer_than_it_is_told(server: StandInServer) -> None:
    server.have(change(lambda sound: Response(200, sound.body * 1_000, seconds=0.5)))
    begun_at = time.monotonic()

    assert len(ask(f"{server.url}/v1/pages")[1]) == 16_000
    assert 0.5 <= time.monotonic() - begun_at < 5


def test_a_redirect_does_nothing_until_somebody_follows(
    server: StandInServer, counter: Counter
) -> None:
    server.have(redirect)

    status, _, headers = ask(f"{server.url}/v1/pages", body=b"x")

    assert (status, counter.count) == (302, 0)
    assert ask(headers["Location"], "GET")[:2] == (201, b'{\n  "count": 1\n}')
    assert counter.seen[0].body == b"x"


def test_a_call_takes_as_long_as_it_is_told(server: StandInServer) -> None:
    server.delay_seconds = 0.3
    begun_at = time.monotonic()

    ask(f"{server.url}/v1/pages")

    assert time.monotonic() - begun_at >= 0.3
