"""The server on waitress: threads, limits, slow clients and the graceful stop."""

from __future__ import annotations

import http.client
import resource
import socket
import threading
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from typing import Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
from structlog.testing import capture_logs
from waitress.channel import HTTPChannel

from adapters.http.middleware import SECURITY_HEADERS
from entrypoints import waitress_server
from entrypoints.serve import listen
from entrypoints.waitress_server import THREADS, Server
from tests.entrypoints.running import connected
from tests.waiting import LIMIT_SECONDS, wait_until

GET: Final = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_GET: Final = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


def body_of_response(client: socket.socket) -> bytes:
    response = http.client.HTTPResponse(client)
    response.begin()
    return response.read()


@contextmanager
def server_of(app: WSGIApplication) -> Iterator[int]:
    """Serve an application within the block, and return the port."""
    with closing(listen("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        server = Server(app, listening)
        thread = threading.Thread(target=server.run)
        thread.start()
        yield port
        server.stop()
        thread.join(LIMIT_SECONDS)
        assert not thread.is_alive()


def always(body: bytes) -> WSGIApplication:
    """Return an application with one response to everything."""

    def respond(_: object, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    return respond


def test_all_pipelined_requests_are_answered_even_if_the_client_reads_slowly() -> None:
    body = b"x" * 400_000
    with server_of(always(body)) as port, connected(port) as client:
        # The responses are more than the socket and the server's own buffer hold.
        client.sendall(GET * 59 + LAST_GET)
        received = 0
        while chunk := client.recv(1_000_000):
            received += chunk.count(b"x")

    assert received == 60 * len(body)


def test_the_main_thread_does_not_poll_a_connection_while_another_thread_sends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If it polled, it would hold the interpreter lock that the sending thread waits for."""
    is_answering: list[bool] = []
    handle_write = HTTPChannel.handle_write

    def note(channel: HTTPChannel) -> None:
        is_answering.append(bool(channel.requests))
        handle_write(channel)

    def ask(port: int) -> list[bytes]:
        with closing(http.client.HTTPConnection("127.0.0.1", port, LIMIT_SECONDS)) as client:
            bodies = []
            for _ in range(50):
                client.request("GET", "/")
                bodies.append(client.getresponse().read())
            return bodies

    monkeypatch.setattr(HTTPChannel, "handle_write", note)
    with server_of(always(b"hello")) as port, ThreadPoolExecutor(2 * THREADS) as pool:
        answers = list(pool.map(ask, [port] * 2 * THREADS))

    assert answers == [[b"hello"] * 50] * 2 * THREADS
    assert True not in is_answering


def test_a_client_that_does_not_read_its_response_occupies_no_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waitress_server, "THREADS", 1)
    begun = threading.Semaphore(0)

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        begun.release()
        return always(b"x" * 3_000_000)(environ, start_response)

    with server_of(respond) as port, connected(port) as client, connected(port) as other:
        # The responses are more than what waitress lets wait by default.
        client.sendall(GET * 10)
        for _ in range(10):
            assert begun.acquire(timeout=LIMIT_SECONDS)
        other.sendall(GET)
        assert len(body_of_response(other)) == 3_000_000


def test_a_response_that_the_client_reads_slowly_is_sent_before_the_server_stops() -> None:
    answered = threading.Event()

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterator[bytes]:
        yield from always(b"x" * 5_000_000)(environ, start_response)
        answered.set()

    def read_late(client: socket.socket) -> bytes:
        # Without the rest of the response the server would stop within this time.
        time.sleep(3 * waitress_server.QUIET_SECONDS)
        return body_of_response(client)

    with ExitStack() as opened:
        reader = opened.enter_context(ThreadPoolExecutor(1))
        with server_of(respond) as port:
            client = opened.enter_context(connected(port))
            client.sendall(GET)
            assert answered.wait(LIMIT_SECONDS)
            body = reader.submit(read_late, client)

        assert len(body.result()) == 5_000_000


# Shows F41.
def test_a_connection_over_the_limit_waits_until_another_connection_ends(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Half of 8 descriptors: the listening socket, the trigger and two connections.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    with ExitStack() as opened, server_of(always(b"hello")) as port:
        first, second, third = (opened.enter_context(connected(port)) for _ in range(3))
        for each in (first, second):
            each.sendall(GET)
            assert body_of_response(each) == b"hello"
        third.sendall(GET)
        third.setblocking(False)
        with pytest.raises(BlockingIOError):
            third.recv(1)
        first.close()
        third.settimeout(LIMIT_SECONDS)
        assert body_of_response(third) == b"hello"


@contextmanager
def threads_held_up(count: int = THREADS) -> Iterator[int]:
    """Return the port of a server with `count` hanging requests, which end after the block."""
    goes_on, begun = threading.Event(), threading.Semaphore(0)

    def respond(environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if environ["PATH_INFO"] == "/hangs":
            begun.release()
            goes_on.wait(LIMIT_SECONDS)
        return always(b"hello")(environ, start_response)

    with ExitStack() as opened, server_of(respond) as port:
        opened.callback(goes_on.set)
        for _ in range(count):
            opened.enter_context(connected(port)).sendall(GET.replace(b"/ ", b"/hangs "))
            assert begun.acquire(timeout=LIMIT_SECONDS)
        yield port
        goes_on.set()


def test_hanging_requests_do_not_delay_other_requests() -> None:
    with threads_held_up(THREADS - 1) as port, connected(port) as other:
        other.sendall(GET)
        assert body_of_response(other) == b"hello"


# Shows F9.
def test_clients_that_connected_before_the_server_stops_are_answered() -> None:
    with ExitStack() as opened:
        with threads_held_up() as port:
            clients = [opened.enter_context(connected(port)) for _ in range(100)]
            for each in clients:
                each.sendall(LAST_GET)

        assert [body_of_response(each) for each in clients] == [b"hello"] * 100


# Shows F41.
def test_large_responses_arrive_completely_even_if_all_threads_send_large_responses() -> None:
    pieces = [bytes([number]) * 500_000 for number in range(40)]
    is_under_way = threading.Barrier(THREADS)

    def respond(_: object, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Length", str(sum(map(len, pieces))))])
        is_under_way.wait(LIMIT_SECONDS)
        yield from pieces

    def take(port: int) -> bool:
        with connected(port) as client:
            client.sendall(GET)
            return body_of_response(client) == b"".join(pieces)

    with server_of(respond) as port, ThreadPoolExecutor(THREADS) as pool:
        assert all(pool.map(take, [port] * THREADS))


# Shows S11.
def test_a_crash_in_the_server_is_logged_without_the_request_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def crash(_: object, __: object) -> list[bytes]:
        raise ValueError

    with server_of(crash) as port, connected(port) as client:
        client.sendall(GET.replace(b"/ ", b"/4242424242424242 "))
        received = client.recv(10_000)
        assert b" 500 " in received
        assert b"waitress" not in received

    assert [each.getMessage() for each in caplog.records] == ["Exception while serving"]


# Shows S11.
def test_a_client_that_disconnects_is_logged_without_the_request_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    has_left = threading.Event()

    def respond(_: object, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [])
        has_left.wait(LIMIT_SECONDS)
        while True:
            yield b"x" * 100_000
            time.sleep(0.01)  # else the main thread might never get at the connection

    with server_of(respond) as port:
        with connected(port) as leaving:
            leaving.sendall(GET.replace(b"/ ", b"/4242424242424242 "))
        has_left.set()
        wait_until(lambda: caplog.records)

    assert [each.getMessage() for each in caplog.records] == ["Client disconnected while serving"]


def test_a_client_that_sends_tls_to_the_http_port_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waitress_server._Channel, "has_logged_tls", False)
    with capture_logs() as lines, server_of(always(b"yes")) as port:
        for _ in range(2):
            with connected(port) as client:
                client.sendall(b"\x16\x03\x01\x00\xa5")
                assert client.recv(1) == b""
        with connected(port) as client:
            client.sendall(LAST_GET)
            assert body_of_response(client) == b"yes"
    assert [line["event"] for line in lines] == ["https_on_http_port"]


def test_responses_that_the_server_itself_sends_have_the_security_headers() -> None:
    with server_of(always(b"yes")) as port, connected(port) as client:
        client.sendall(b"x\r\n\r\n")
        response = http.client.HTTPResponse(client)
        response.begin()
        assert response.status == 400
    assert {name: response.headers[name] for name in SECURITY_HEADERS} == SECURITY_HEADERS
