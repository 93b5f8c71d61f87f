"""The service over real sockets: limits, strictness, the webhook, and the drain."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from random import Random
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
from structlog.testing import capture_logs

from adapters.http import connections, readiness, server
from adapters.http.server import THREADS, Server
from adapters.sqlite.storage import SqliteStorage
from domain.card_sessions import SessionStatus
from domain.identifiers import MerchantAccount
from entrypoints import serve as serving
from entrypoints.container import FAKE, STRIPE
from entrypoints.serve import ServeError, Service, listen, refuse_missing_psps, serve
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.builders import CENTER_ID
from tests.entrypoints.running import Running, run_service
from tests.installation import GOOD_CARD, Installation
from tests.waiting import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Give a service that the tests of this module share."""
    with run_service(tmp_path_factory.mktemp("running")) as service:
        yield service


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[Running]:
    """Give a service that only this test uses."""
    with run_service(tmp_path) as service:
        yield service


def test_a_webhook_over_http_gets_the_card_stored_without_the_browser(running: Running) -> None:
    status, _, text = running.request("POST", ACCOUNTS, json.dumps(GOOD_BODY))
    assert status == 200
    link = json.loads(text)["hosted_payment_uri"].removeprefix(f"http://127.0.0.1:{running.port}")
    status, headers, _ = running.request("GET", link)
    assert status == 303
    (session,) = (
        running.installation.session(token_id) for token_id in [json.loads(text)["token_id"]]
    )
    assert headers["Location"].endswith(running.installation.page_reference(session))
    running.installation.type_card(session, GOOD_CARD)

    wait_until(
        lambda: running.installation.session(session.token_id).status is SessionStatus.COMPLETED
    )
    assert len(running.installation.accounts()) == 1


def test_answers_carry_no_version_banner(running: Running) -> None:
    _, headers, _ = running.request("GET", "/healthz")

    assert "Server" not in headers


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"POST / HTTP/1.0\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\nhello",
        b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nbroken header\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nX-A: a\r\n b\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: +5\r\n\r\nhello",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n",
        b"GET / HTTP/1.1\nHost: x\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
        b"GET / HTTP/2.0\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    ],
    ids=[
        "two lengths",
        "two lengths in 1.0",
        "transfer-encoding in 1.0",
        "unknown encoding",
        "no colon",
        "folded",
        "plus",
        "endless number",
        "bare newline",
        "no host",
        "two hosts",
        "version",
        "tls",
    ],
)
def test_what_proxies_may_read_differently_is_refused_and_ends_the_connection(
    running: Running, request_bytes: bytes
) -> None:
    answer = running.send_raw(request_bytes)

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.0 400 ", b"HTTP/1.1 400 "))
    assert b"Connection: close" in head
    assert json.loads(body) == {"code": 400, "message": "Invalid request"}


def test_a_chunked_body_is_read(running: Running) -> None:
    body = json.dumps(GOOD_BODY).encode()
    answer = running.send_raw(
        f"POST {ACCOUNTS} HTTP/1.1\r\nHost: x\r\nAuthorization: bearer {running.token}\r\n"
        "Content-Type: application/json\r\nConnection: close\r\n"
        f"Transfer-Encoding: chunked\r\n\r\n{len(body):x}\r\n".encode()
        + body
        + b"\r\n0\r\n\r\n"
    )

    assert answer.startswith(b"HTTP/1.1 200 ")


def test_a_body_of_a_megabyte_gets_the_answer_in_json(running: Running) -> None:
    status, _, text = running.request("POST", ACCOUNTS, "x" * 1_000_000)

    assert status == 413
    assert json.loads(text)["error"] == {"code": 413, "message": "Request body too large"}


def test_headers_have_an_end(running: Running) -> None:
    answer = running.send_raw(
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: " + b"x" * 20_000 + b"\r\n\r\n"
    )

    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith((b"HTTP/1.1 431 ", b"HTTP/1.0 431 "))
    assert b"X-Content-Type-Options: nosniff" in head
    assert json.loads(body) == {"code": 431, "message": "Request header fields too large"}


def test_slow_clients_do_not_keep_others_waiting(running: Running) -> None:
    slow = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(64)]
    for connection in slow:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")

    status, _, _ = running.request("GET", "/healthz")

    assert status == 200
    for connection in slow:
        connection.close()


def test_a_request_that_drips_in_is_given_up(
    running: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connections, "REQUEST_SECONDS", 0.1)
    with closing(socket.create_connection(("127.0.0.1", running.port), timeout=20)) as dripping:

        def is_given_up() -> bool:
            with suppress(BlockingIOError):
                return dripping.recv(1, socket.MSG_DONTWAIT) == b""
            return False

        def drip() -> bool:
            with suppress(BrokenPipeError, ConnectionResetError):
                dripping.send(b"x")
                return is_given_up()
            return True

        wait_until(drip)


def test_connections_leave_half_of_the_file_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (300, 300))
    with closing(listen("127.0.0.1", 0)) as listening:
        server = Server(lambda _, __: [], listening)
        assert server.connection_limit == 150
        thread = threading.Thread(target=server.run)
        thread.start()
        server.drain()
        thread.join(20)


@contextmanager
def server_of(app: WSGIApplication, *, answering_at_once: int = 1) -> Iterator[int]:
    """Serve an application, and give the port."""
    with closing(listen("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        server = Server(app, listening, answering_at_once=answering_at_once)
        thread = threading.Thread(target=server.run)
        thread.start()
        yield port
        server.drain()
        thread.join(20)


def plain(body: bytes) -> WSGIApplication:
    """Give an application with the same answer to everything."""

    def answer(_: object, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    return answer


@pytest.fixture(params=["epoll", "poll"])
def _either_loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have it tried as on Linux, and as where there is no epoll."""
    if request.param == "poll":
        monkeypatch.delattr("select.epoll")


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


@pytest.mark.usefixtures("_either_loop")
def test_requests_sent_at_one_go_are_all_answered_however_late_the_client_reads() -> None:
    body = b"x" * 400_000
    with (
        server_of(plain(body)) as port,
        closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as client,
    ):
        # More than the socket and the server's own buffer take.
        client.sendall(GET * 59 + LAST_GET)
        received = 0
        while chunk := client.recv(1_000_000):
            received += chunk.count(b"x")

    assert received == 60 * len(body)


@pytest.mark.usefixtures("_either_loop")
def test_a_connection_over_the_limit_waits_until_another_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # The listening socket and the trigger count as well.
    monkeypatch.setattr(resource, "getrlimit", lambda _: (8, 8))
    with ExitStack() as opened, server_of(plain(b"hello")) as port:
        first, second, third = (
            opened.enter_context(closing(socket.create_connection(("127.0.0.1", port), 20)))
            for _ in range(3)
        )
        for each in (first, second):
            each.sendall(GET)
            assert _received(each) == b"hello"
        third.sendall(GET)
        third.setblocking(False)
        with pytest.raises(BlockingIOError):
            third.recv(1)
        first.close()
        third.settimeout(20)
        assert _received(third) == b"hello"


def test_a_process_takes_a_part_of_those_who_come_at_once_and_all_of_them_when_it_drains() -> None:
    with ExitStack() as opened, closing(listen("127.0.0.1", 0)) as listening:
        server = Server(plain(b"hello"), listening)
        clients = [
            opened.enter_context(closing(socket.create_connection(listening.getsockname(), 20)))
            for _ in range(2 * connections.LET_IN_AT_ONCE + 2)
        ]
        server._server.handle_accept()
        assert len(server._connections()) == connections.LET_IN_AT_ONCE

        server.drain()
        server.run()
        assert server._connections() == []
        assert {client.recv(1) for client in clients} == {b""}


def _received(client: socket.socket) -> bytes:
    response = http.client.HTTPResponse(client)
    response.begin()
    return response.read()


def test_a_client_that_stops_to_read_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "IDLE_SECONDS", 0.1)
    with closing(listen("127.0.0.1", 0)) as listening:
        address = listening.getsockname()
        server = Server(plain(b"x" * 8_000_000), listening)
        thread = threading.Thread(target=server.run)
        thread.start()
        with closing(socket.create_connection(address, timeout=20)) as client:
            client.sendall(GET)
            wait_until(server._connections)
            wait_until(lambda: not server._connections())
        server.drain()
        thread.join(20)


@contextmanager
def threads_held_up(
    count: int = THREADS, *, before: Callable[[int], object] = lambda _: None
) -> Iterator[int]:
    """Serve, with threads in a request that goes on after the block, when the drain begins.

    `before` is done with the port while threads are free.
    """
    goes_on, begun = threading.Event(), threading.Semaphore(0)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        if environ["PATH_INFO"] == "/hangs":
            begun.release()
            goes_on.wait(60)
        return list(plain(b"hello")(environ, start_response))

    with ExitStack() as opened, server_of(answer) as port:
        opened.callback(goes_on.set)
        before(port)
        for _ in range(count):
            client = opened.enter_context(closing(http.client.HTTPConnection("127.0.0.1", port)))
            client.request("GET", "/hangs")
            assert begun.acquire(timeout=20)
        yield port
        goes_on.set()


def test_requests_that_hang_keep_no_other_waiting() -> None:
    with (
        threads_held_up(THREADS - 1) as port,
        closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as other,
    ):
        other.request("GET", "/")
        assert other.getresponse().read() == b"hello"


def test_requests_in_pieces_come_whole_and_in_order_whichever_threads_read_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Every answer is what its request sent, on each of several connections."""
    # Every connection is watched again and again, also those that a thread is at.
    monkeypatch.setattr(readiness, "SCAN_SECONDS", 0)
    monkeypatch.setattr(connections, "HELD_UP_SECONDS", 0)
    random = Random(1)

    def echo(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        body: bytes = environ["wsgi.input"].read()
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    def converse(port: int, sent: Sequence[bytes], pieces: Sequence[bytes]) -> list[bytes]:
        with closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as client:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for piece in pieces:
                client.sendall(piece)
            answers = []
            with client.makefile("rb") as answer:
                for _ in sent:
                    length = 0
                    while (line := answer.readline()) != b"\r\n":
                        if line.lower().startswith(b"content-length:"):
                            length = int(line.split(b":")[1])
                    answers.append(answer.read(length))
            return answers

    bodies = [[random.randbytes(random.randrange(3000)) for _ in range(60)] for _ in range(8)]
    streams = [
        b"".join(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(each), each)
            for each in sent
        )
        for sent in bodies
    ]
    with server_of(echo, answering_at_once=8) as port, ThreadPoolExecutor(8) as pool:
        answered = [
            pool.submit(
                converse, port, sent, [stream[at : at + 700] for at in range(0, len(stream), 700)]
            )
            for sent, stream in zip(bodies, streams, strict=True)
        ]
        assert [each.result() for each in answered] == bodies


@pytest.mark.usefixtures("_either_loop")
def test_large_answers_come_whole_also_when_every_thread_has_one_to_send(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(readiness, "SCAN_SECONDS", 0)
    monkeypatch.setattr(server, "THREADS", 4)
    pieces = [bytes([number]) * 1_000_000 for number in range(40)]
    is_under_way = threading.Barrier(4)

    def answer(_: object, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [("Content-Length", "40000000")])
        is_under_way.wait(20)
        yield from pieces

    def take(port: int) -> bool:
        with closing(http.client.HTTPConnection("127.0.0.1", port, timeout=20)) as client:
            client.request("GET", "/")
            response = client.getresponse()
            read = bytearray()
            while chunk := response.read(100_000):
                read += chunk
            return read == b"".join(pieces)

    with server_of(answer, answering_at_once=4) as port, ThreadPoolExecutor(4) as pool:
        assert all(each.result() for each in [pool.submit(take, port) for _ in range(4)])


def test_whoever_has_connected_before_the_drain_is_answered() -> None:
    with ExitStack() as opened:
        with threads_held_up() as port:
            clients = [
                opened.enter_context(closing(socket.create_connection(("127.0.0.1", port), 20)))
                for _ in range(100)
            ]
            for each in clients:
                each.sendall(LAST_GET)

        assert [_received(each) for each in clients] == [b"hello"] * 100


def test_a_request_that_waits_for_a_thread_is_not_taken_for_an_idle_connection(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looks: list[float] = []
    look = connections.DrainingServer.maintenance

    def counted(server: connections.DrainingServer, now: float) -> None:
        looks.append(now)
        # As if it were much later.
        look(server, now + 1_000)

    with closing(socket.socket()) as client:

        def connect(port: int) -> None:
            client.settimeout(20)
            client.connect(("127.0.0.1", port))
            client.sendall(GET)
            assert _received(client) == b"hello"

        with threads_held_up(before=connect):
            client.sendall(GET)
            monkeypatch.setattr(connections.DrainingServer, "maintenance", counted)
            wait_until(lambda: len(looks) > 1)
        assert _received(client) == b"hello"


@pytest.mark.usefixtures("_either_loop")
def test_an_answer_to_be_continued_is_told_to_go_on() -> None:
    with (
        server_of(plain(b"hello")) as port,
        closing(socket.create_connection(("127.0.0.1", port), timeout=20)) as client,
    ):
        client.sendall(
            b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nExpect: 100-continue\r\n\r\n"
        )
        assert client.recv(1000).startswith(b"HTTP/1.1 100 ")
        client.sendall(b"x")
        assert client.recv(1000).startswith(b"HTTP/1.1 200 ")


def test_a_crash_below_the_application_is_logged_without_the_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def crash(_: object, __: object) -> list[bytes]:
        raise ValueError

    with server_of(crash) as port, closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        client.request("GET", "/4242424242424242")
        response = client.getresponse()
        assert (response.status, json.loads(response.read())["message"]) == (500, "Internal error")

    assert [each.getMessage() for each in caplog.records] == ["Exception while serving"]


def test_what_is_no_method_of_http_is_not_in_the_log(running: Running) -> None:
    with capture_logs() as lines:
        running.send_raw(b"4242424242424242 / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wait_until(lambda: lines)

    assert [(line["method"], line["status"]) for line in lines] == [("other", 404)]


def test_a_client_that_leaves_is_logged_without_the_path(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    has_left = threading.Event()

    def answer(_: object, start_response: StartResponse) -> Iterator[bytes]:
        start_response("200 OK", [])
        has_left.wait(20)
        while True:
            yield b"x" * 100_000

    with server_of(answer) as port:
        with closing(socket.create_connection(("127.0.0.1", port))) as leaving:
            leaving.sendall(b"GET /4242424242424242 HTTP/1.1\r\nHost: x\r\n\r\n")
        has_left.set()
        wait_until(lambda: caplog.records)

    assert [each.getMessage() for each in caplog.records] == ["Client disconnected while serving"]


def test_what_is_in_flight_is_answered_before_the_end(stoppable: Running) -> None:
    body = json.dumps(GOOD_BODY)
    with closing(stoppable.connect()) as connection:
        # The request is under way: its headers are there, its body is not.
        connection.putrequest("POST", ACCOUNTS)
        connection.putheader("Authorization", f"bearer {stoppable.token}")
        connection.putheader("Content-Type", "application/json")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders()
        connection.send(body[:5].encode())
        stoppable.request("GET", "/healthz")

        stoppable.service.stop()
        wait_until(lambda: not accepts(stoppable.port))
        connection.send(body[5:].encode())
        response = connection.getresponse()
        assert response.status == 200
        token_id = json.loads(response.read())["token_id"]
    stoppable.thread.join(20)
    assert not stoppable.thread.is_alive()
    assert stoppable.installation.session(token_id).center_id == CENTER_ID


def test_a_drain_ends_every_connection_with_an_answer(stoppable: Running) -> None:
    """Clients that keep their connections busy get whole answers, the last of which says so."""
    answers: list[int] = []
    cut_off: list[Exception] = []

    def keep_asking() -> None:
        with closing(stoppable.connect()) as connection:
            while True:
                try:
                    connection.request("GET", "/healthz")
                    response = connection.getresponse()
                    response.read()
                except (OSError, http.client.HTTPException) as fault:
                    cut_off.append(fault)
                    return
                answers.append(response.status)
                if response.headers["Connection"] == "close":
                    return

    clients = [threading.Thread(target=keep_asking) for _ in range(12)]
    for client in clients:
        client.start()
    wait_until(lambda: len(answers) > 100)
    stoppable.stop()
    for client in clients:
        client.join(20)

    assert cut_off == []
    assert set(answers) == {200}


def accepts(port: int) -> bool:
    """Tell whether somebody listens on a port."""
    with closing(socket.socket()) as attempt:
        return attempt.connect_ex(("127.0.0.1", port)) == 0


def test_a_port_that_is_taken_is_named() -> None:
    with closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(ServeError, match=f"cannot listen on 127.0.0.1 port {port}"):
            listen("127.0.0.1", port)


def test_the_fake_psp_is_refused_where_the_world_can_reach_it(tmp_path: Path) -> None:
    installation = Installation(tmp_path, base_url="https://cards.example")

    with pytest.raises(ServeError, match="CARDONFILE_ALLOW_FAKE_PSP"):
        refuse_missing_psps(installation.container)
    assert FAKE not in installation.container.psps()
    installation.close()


def test_nothing_that_the_checks_opened_is_open_when_processes_are_forked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installation = Installation(tmp_path)
    looks: list[int] = []

    class Looking:
        def __init__(self, count: int, _: Callable[[], Service]) -> None:
            self.count = count

        def run(self) -> None:
            looks.append(self.count)
            assert isinstance(installation.storage, SqliteStorage)
            assert list(installation.storage._connections._readers) == []
            assert installation.storage._connections._writer is None
            assert installation.psp._database._connections.db is None

        def finish(self) -> int:
            return 1

    monkeypatch.setattr(serving, "Processes", Looking)
    with pytest.raises(ServeError, match="1 of 3 processes did not finish"):
        serve(installation.container, "127.0.0.1", 0, processes=3)
    assert looks == [3]


def test_a_process_that_starts_while_the_storage_is_away_says_so_to_whoever_asks(
    tmp_path: Path,
) -> None:
    def storage_goes_away(installation: Installation) -> None:
        installation.storage.close()
        installation.database.unlink()

    with run_service(tmp_path, before=storage_goes_away) as running:
        assert running.request("GET", "/healthz")[0] == 200
        assert running.request("GET", "/readyz")[0] == 503


def test_a_center_on_stripe_without_keys_refuses_to_start(installation: Installation) -> None:
    installation.configure(provider=STRIPE)

    with pytest.raises(ServeError, match="for Stripe: set CARDONFILE_STRIPE_SECRET_KEY"):
        refuse_missing_psps(installation.container)


def test_a_merchant_account_without_keys_is_named_at_the_start(tmp_path: Path) -> None:
    installation = Installation(
        tmp_path,
        CARDONFILE_STRIPE_SECRET_KEY="sk_test_1",
        CARDONFILE_STRIPE_WEBHOOK_SECRETS="whsec_1",
    )
    installation.configure(provider=STRIPE)
    refuse_missing_psps(installation.container)

    installation.configure(provider=STRIPE, merchant_account=MerchantAccount("harbor_spa"))

    with pytest.raises(ServeError, match="at Stripe without keys: harbor_spa; set "):
        refuse_missing_psps(installation.container)
    installation.close()
