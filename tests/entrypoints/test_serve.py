"""The service over real sockets: limits, strictness, the webhook, and the drain."""

from __future__ import annotations

import http.client
import json
import resource
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import pytest
from structlog.testing import capture_logs

from adapters.http.webhooks import MAX_WEBHOOK_BYTES
from adapters.stripe.plugin import NAME as STRIPE
from domain.card_sessions import SessionStatus
from domain.identifiers import MerchantAccount
from entrypoints.container import build
from entrypoints.serve import THREADS, ServeError, Server, listen, refuse_missing_psps
from entrypoints.settings import Settings
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


def test_a_body_as_large_as_a_webhook_gets_the_answer_in_json(running: Running) -> None:
    status, _, text = running.request("POST", ACCOUNTS, "x" * MAX_WEBHOOK_BYTES)

    assert status == 413
    assert json.loads(text)["error"] == {"code": 413, "message": "Request body too large"}


def test_headers_have_an_end(running: Running) -> None:
    answer = running.send_raw(
        b"GET / HTTP/1.1\r\nHost: x\r\n" + b"X-A: " + b"x" * 20_000 + b"\r\n\r\n"
    )

    assert answer.startswith((b"HTTP/1.1 431 ", b"HTTP/1.0 431 "))


def test_nothing_is_kept_of_a_body_larger_than_any_may_be(running: Running) -> None:
    head = b"POST /webhooks/fake HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000\r\n\r\n"

    assert b" 413 " in running.send_raw(head).partition(b"\r\n")[0]


def test_slow_clients_do_not_keep_others_waiting(running: Running) -> None:
    slow = [socket.create_connection(("127.0.0.1", running.port)) for _ in range(64)]
    for connection in slow:
        connection.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")

    status, _, _ = running.request("GET", "/healthz")

    assert status == 200
    for connection in slow:
        connection.close()


@contextmanager
def server_of(app: WSGIApplication) -> Iterator[int]:
    """Serve an application, and give the port."""
    with closing(listen("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        server = Server(app, listening)
        thread = threading.Thread(target=server.run)
        thread.start()
        yield port
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


def plain(body: bytes) -> WSGIApplication:
    """Give an application with the same answer to everything."""

    def answer(_: object, start_response: StartResponse) -> list[bytes]:
        start_response("200 OK", [("Content-Length", str(len(body)))])
        return [body]

    return answer


GET = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
LAST_GET = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


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


def _received(client: socket.socket) -> bytes:
    response = http.client.HTTPResponse(client)
    response.begin()
    return response.read()


@contextmanager
def threads_held_up(count: int = THREADS) -> Iterator[int]:
    """Serve, with threads in a request that goes on after the block, when the drain begins."""
    goes_on, begun = threading.Event(), threading.Semaphore(0)

    def answer(environ: WSGIEnvironment, start_response: StartResponse) -> list[bytes]:
        if environ["PATH_INFO"] == "/hangs":
            begun.release()
            goes_on.wait(60)
        return list(plain(b"hello")(environ, start_response))

    with ExitStack() as opened, server_of(answer) as port:
        opened.callback(goes_on.set)
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


def test_large_answers_come_whole_also_when_every_thread_has_one_to_send() -> None:
    pieces = [bytes([number]) * 1_000_000 for number in range(40)]
    is_under_way = threading.Barrier(THREADS)

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

    with server_of(answer) as port, ThreadPoolExecutor(THREADS) as pool:
        assert all(each.result() for each in [pool.submit(take, port) for _ in range(THREADS)])


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


def test_a_crash_below_the_application_is_logged_without_the_path(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def crash(_: object, __: object) -> list[bytes]:
        raise ValueError

    with server_of(crash) as port, closing(http.client.HTTPConnection("127.0.0.1", port)) as client:
        client.request("GET", "/4242424242424242")
        response = client.getresponse()
        assert response.status == 500
        assert b"waitress" not in response.read()

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


def test_the_fake_psp_is_refused_where_the_world_can_reach_it(installation: Installation) -> None:
    public = Settings.read(
        {
            "CARDONFILE_DATABASE_URL": f"sqlite:///{installation.database}",
            "CARDONFILE_PUBLIC_BASE_URL": "https://cards.example",
        }
    )

    with pytest.raises(ServeError, match="CARDONFILE_ALLOW_FAKE_PSP"):
        refuse_missing_psps(build(public))


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

    with pytest.raises(ServeError, match="for the PSP stripe: set CARDONFILE_STRIPE_SECRET_KEY"):
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

    with pytest.raises(ServeError, match="account harbor_spa of stripe, which has no keys: set "):
        refuse_missing_psps(installation.container)
    installation.close()
