"""The stand-in server simulates only the faults that a test sets.

The contract suite shows that all other faults happen: it fails otherwise.
"""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing

import pytest

from adapters.psp_suite.stand_in import (
    Request,
    Response,
    StandInServer,
    Trouble,
    drop_call,
    drop_response,
    respond_with,
)
from tests.waiting import LIMIT_SECONDS


@pytest.fixture
def handled() -> list[Request]:
    return []


@pytest.fixture
def server(handled: list[Request]) -> Iterator[StandInServer]:
    def respond(request: Request) -> Response:
        handled.append(request)
        return Response(201 if request.path.startswith("/v1/") else 200)

    with closing(StandInServer(respond, api="/v1/")) as server:
        yield server


def ask(server: StandInServer, path: str = "/v1/pages", method: str = "POST") -> int:
    """Return the status of the response."""
    address = server.url.removeprefix("http://")
    with closing(http.client.HTTPConnection(address, timeout=LIMIT_SECONDS)) as connection:
        connection.request(method, path)
        return connection.getresponse().status


def test_a_simulated_fault_lasts_until_the_stand_in_server_recovers(server: StandInServer) -> None:
    server.have(respond_with(Response(503)))
    assert [ask(server) for _ in range(2)] == [503, 503]
    assert ask(server, "/pay/1", "GET") == 200, "a browser's request is no call"
    server.recover()
    assert ask(server) == 201
    assert server.calls == ["POST /v1/pages"] * 3


def test_a_simulated_fault_affects_only_the_given_calls(server: StandInServer) -> None:
    server.have(respond_with(Response(429)), "^POST ", from_call=2, times=1)

    statuses = [ask(server, method=method) for method in ("POST", "GET", "POST", "POST")]

    assert statuses == [201, 201, 429, 201]


@pytest.mark.parametrize(("trouble", "times"), [(drop_call, 0), (drop_response, 1)])
def test_a_call_whose_connection_is_dropped_gets_no_response(
    server: StandInServer, handled: list[Request], trouble: Trouble, times: int
) -> None:
    server.have(trouble)

    with pytest.raises(http.client.RemoteDisconnected):
        ask(server)

    assert len(handled) == times
