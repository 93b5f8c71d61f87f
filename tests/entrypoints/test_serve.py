"""The service over real sockets: limits, slow clients, the log and the graceful stop."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import ExitStack, closing
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from structlog.testing import capture_logs

from adapters.fake_psp.plugin import NAME as FAKE
from adapters.stripe.plugin import NAME as STRIPE
from domain.identifiers import MerchantAccount, ProviderName
from domain.sessions.session import CardSession
from entrypoints import waitress_server
from entrypoints.container import build
from entrypoints.serve import NAME_ORIGINS, ServeError, check, refuse_missing_psps
from entrypoints.settings import Settings
from entrypoints.waitress_server import THREADS
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.builders import CENTER_ID
from tests.entrypoints.running import Running, connected, run_service
from tests.installation import Installation
from tests.programs import got
from tests.waiting import LIMIT_SECONDS, wait_until

# Any: they are keywords too.
PUBLIC: Final[dict[str, Any]] = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Run a service that the tests of this module share."""
    with run_service(tmp_path_factory.mktemp("running")) as service:
        yield service


@pytest.fixture
def stoppable(tmp_path: Path) -> Iterator[Running]:
    """Run a service for one test, which may stop it."""
    with run_service(tmp_path) as service:
        yield service


def path_of(session: CardSession) -> str:
    query = {"token_id": session.token_id, "key": session.link_key}
    return f"/hosted-payments?{urlencode({**query, 'redirect_uri': session.redirect_uri})}"


# Shows S26.
@pytest.mark.parametrize(("is_opened", "leg", "status"), [(True, "/return", 303), (False, "", 503)])
def test_concurrent_requests_for_the_same_link_occupy_only_one_call_to_the_psp(
    stoppable: Running, is_opened: bool, leg: str, status: int
) -> None:
    installation, provider = stoppable.installation, stoppable.installation.provider
    looped = installation.opened_session() if is_opened else installation.add_card()
    others = [installation.add_card() for _ in range(THREADS)]
    asked: list[str] = []
    goes_on = threading.Event()

    def hang(method: str, _: object) -> None:
        asked.append(method)
        goes_on.wait(LIMIT_SECONDS)

    path = path_of(looped).replace("/hosted-payments", f"/hosted-payments{leg}")
    with ThreadPoolExecutor(THREADS) as pool, ExitStack() as opened:
        opened.callback(goes_on.set)
        provider.before = hang
        looping = [pool.submit(stoppable.request, "GET", path) for _ in range(4 * THREADS)]
        finished = list(islice(as_completed(looping, LIMIT_SECONDS), len(looping) - 1))
        assert {each.result()[0] for each in finished} == {status}
        assert asked == ["outcome" if is_opened else "start"]

        provider.before = lambda _, __: None
        answers = [stoppable.request("GET", path_of(each))[0] for each in others]
        assert answers == [303] * THREADS


# Shows S17.
def test_responses_do_not_reveal_the_version_of_the_server(running: Running) -> None:
    assert "Server" not in running.request("GET", "/healthz")[1]


@pytest.mark.parametrize(
    ("headers", "status"),
    [(b"X-A: " + b"x" * 20_000, b" 431 "), (b"Content-Length: 1000000", b" 413 ")],
)
def test_requests_that_are_too_large_are_refused_before_they_are_read(
    running: Running, headers: bytes, status: bytes
) -> None:
    sent = b"POST /webhooks/fake HTTP/1.1\r\nHost: x\r\n" + headers + b"\r\n\r\n"

    assert status in running.send_raw(sent).partition(b"\r\n")[0]


# Shows F41.
def test_slow_clients_do_not_delay_other_clients(running: Running) -> None:
    with ExitStack() as opened:
        for _ in range(64):
            slow = opened.enter_context(connected(running.port))
            slow.sendall(b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nx")

        assert running.request("GET", "/healthz")[0] == 200


def test_each_address_has_its_own_limit_on_failed_authentications(tmp_path: Path) -> None:
    def status_for(to: str, source: str) -> int:
        connection = http.client.HTTPConnection(
            to, service.port, timeout=LIMIT_SECONDS, source_address=(source, 0)
        )
        with closing(connection):
            return got(connection, ACCOUNTS).status

    with run_service(tmp_path, host="::") as service:
        wait_until(lambda: status_for("127.0.0.1", "127.0.0.1") == 429)
        assert status_for("127.0.0.1", "127.0.0.2") == 401
        assert status_for("::1", "::1") == 401


def test_an_unknown_http_method_is_not_logged_verbatim(running: Running) -> None:
    with capture_logs() as lines:
        running.send_raw(b"4242424242424242 / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        wait_until(lambda: lines)

    assert [(line["method"], line["status"]) for line in lines] == [("other", 404)]


# Shows F9.
@pytest.mark.parametrize("held_up_seconds", [0, 2 * waitress_server.QUIET_SECONDS])
def test_requests_in_progress_are_answered_before_the_server_stops(
    stoppable: Running, monkeypatch: pytest.MonkeyPatch, held_up_seconds: float
) -> None:
    sleep = time.sleep
    on_a_busy_machine = SimpleNamespace(
        monotonic=time.monotonic, sleep=lambda seconds: sleep(max(seconds, held_up_seconds))
    )
    monkeypatch.setattr(waitress_server, "time", on_a_busy_machine)
    monkeypatch.setattr(waitress_server, "RECEIVE_SECONDS", LIMIT_SECONDS)

    def is_listening() -> bool:
        with closing(socket.socket()) as attempt:
            return attempt.connect_ex(("127.0.0.1", stoppable.port)) == 0

    body = json.dumps(GOOD_BODY).encode()
    headers = {
        "Authorization": f"bearer {stoppable.token}",
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
    }
    with closing(stoppable.connect()) as connection:
        connection.request("POST", ACCOUNTS, body[:5], headers)
        # Once this is answered, the server has read the half request too.
        stoppable.request("GET", "/healthz")

        stoppable.service.stop()
        wait_until(lambda: not is_listening())
        # Without the half request the server would stop within this time.
        time.sleep(3 * waitress_server.QUIET_SECONDS)
        connection.send(body[5:])
        response = connection.getresponse()
        assert response.status == 200
        token_id = json.loads(response.read())["token_id"]
    stoppable.stop()
    assert stoppable.installation.session(token_id).center_id == CENTER_ID


# Shows F9.
def test_stopping_the_server_lets_every_connection_receive_its_last_response(
    stoppable: Running,
) -> None:
    """Busy clients get complete responses. The last response says that the connection closes."""
    answers: list[int] = []
    connections = [stoppable.connect() for _ in range(12)]

    def keep_asking(connection: http.client.HTTPConnection) -> None:
        is_last = False
        with closing(connection):
            while not is_last:
                response = got(connection, "/healthz")
                answers.append(response.status)
                is_last = response.headers["Connection"] == "close"

    # All are connected before the drain, which refuses later ones.
    for connection in connections:
        connection.connect()
    with ThreadPoolExecutor(len(connections)) as clients:
        asking = [clients.submit(keep_asking, each) for each in connections]
        wait_until(lambda: len(answers) > 100)
        stoppable.stop()

    for each in asking:
        each.result()
    assert set(answers) == {200}


# Shows F18.
def test_a_process_that_starts_without_a_database_reports_that_it_is_not_ready(
    tmp_path: Path,
) -> None:
    def storage_goes_away(installation: Installation) -> None:
        installation.storage.close()
        installation.database.unlink()

    with run_service(tmp_path, before=storage_goes_away) as running:
        assert running.request("GET", "/healthz")[0] == 200
        assert running.request("GET", "/readyz")[0] == 503


@pytest.mark.parametrize(
    ("provider", "account", "complaint"),
    [
        (FAKE, "default", "for the PSP fake, which is not set up: .*CARDONFILE_ALLOW_FAKE_PSP"),
        (ProviderName("acme"), "default", "for the PSP acme, which is not available"),
        (STRIPE, "harbor_spa", "account harbor_spa of stripe, which has no keys: set "),
    ],
)
def test_the_service_does_not_start_if_the_psp_of_a_center_is_not_set_up(
    installation: Installation, provider: ProviderName, account: str, complaint: str
) -> None:
    settings = {
        **PUBLIC,
        "CARDONFILE_DATABASE_URL": f"sqlite:///{installation.database}",
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_1",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_1",
    }
    container = build(Settings.read(settings))
    with closing(container.storage()):
        installation.configure(provider=STRIPE, merchant_account=MerchantAccount("default"))
        refuse_missing_psps(container)

        installation.configure(provider=provider, merchant_account=MerchantAccount(account))
        with pytest.raises(ServeError, match=complaint):
            refuse_missing_psps(container)


def test_serve_explains_how_to_correct_unsafe_settings(tmp_path: Path) -> None:
    public = {**PUBLIC, "CARDONFILE_ALLOW_FAKE_PSP": "1"}
    with closing(Installation(tmp_path, **public)) as installation, capture_logs() as lines:
        installation.database.chmod(0o644)
        check(installation.container)

    assert [(line["event"], line["do"]) for line in lines] == [
        ("database_open_to_all", "chmod 600 these files"),
        ("redirects_to_anywhere", NAME_ORIGINS),
    ]
    assert str(installation.database) in lines[0]["files"]
    assert lines[1]["centers"] == 1
