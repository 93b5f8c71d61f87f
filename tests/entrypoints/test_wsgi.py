"""The service in real processes, with metrics: `cardonfile serve`, and granian beside a worker."""

from __future__ import annotations

import json
import logging
import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from http.client import HTTPConnection
from itertools import repeat
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from falcon import testing

from adapters.psp_suite.concurrency import at_once
from adapters.psp_suite.samples import GUEST_ID
from domain.identifiers import TokenId
from domain.sessions.end import SessionStatus
from domain.sessions.session import CardSession
from entrypoints import wsgi
from tests.adapters.http.api import ACCOUNTS
from tests.builders import CENTER_ID
from tests.databases import guest_on_file, make_database
from tests.entrypoints.running import connected
from tests.installation import DECLINED_CARD, OTHER_GOOD_CARD, PREPAID_CARD, Installation
from tests.postgresql import empty_database
from tests.programs import Program, Server, free_port, got
from tests.scraping import Samples, samples_of
from tests.serving import (
    BODY,
    GRANIAN,
    GRANIAN_OPTIONS,
    SERVERS,
    START_GRANIAN,
    WAITRESS,
    Serving,
    end_adding_card,
)
from tests.waiting import wait_until

SECRETS: Final[dict[str, Any]] = {  # they are keywords too
    "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_s3cret",
    "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_s3cret",
    # Nothing listens there.
    "CARDONFILE_RATE_LIMIT_STORAGE": "redis://:s3cret@127.0.0.1:1",
}


REQUESTS: Final = "http_request_duration_seconds_count"
ADDED: Final = ("POST", "/api/v1/guests/{guest_id}/accounts", "200")


class Measured(Serving):
    """`serve`, or two granian processes beside a worker, with the address that Prometheus scrapes."""

    def __init__(self, folder: Path, server: str) -> None:
        self.metrics = Server()
        self.metrics.port = free_port()
        super().__init__(
            folder,
            server,
            workers={WAITRESS: 1, GRANIAN: 2}[server],
            CARDONFILE_METRICS=f"127.0.0.1:{self.metrics.port}",
            CARDONFILE_METRICS_FOLDER=str(folder / "metrics"),
            **SECRETS,
        )

    def metrics_text(self) -> str:
        """Return the response that Prometheus would get."""
        with closing(self.metrics.connect()) as connection:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            assert response.status == 200
            return response.read().decode()

    def scrape(self) -> Samples:
        return samples_of(self.metrics_text())

    def opened_session(self, connection: HTTPConnection) -> CardSession:
        """Add a card, and open its link."""
        session = self.installation.session(self.add_card(connection))
        link = f"/hosted-payments?key={session.link_key}&redirect_uri={session.redirect_uri}"
        assert got(connection, link).status == 303
        return session


@pytest.fixture(scope="module", params=SERVERS)
def serving(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Measured]:
    """The service in processes. The last test stops granian."""
    with Measured(tmp_path_factory.mktemp("serving"), request.param) as serving:
        yield serving
        assert serving.stop() == [0] * len(serving.programs)


only_on_granian = pytest.mark.parametrize("serving", [GRANIAN], indirect=True)


# Shows F27.
def test_a_card_is_stored_by_the_webhook_even_if_the_browser_never_returns(
    serving: Measured,
) -> None:
    with closing(serving.connect()) as connection:
        session = serving.opened_session(connection)
    serving.installation.type_card(session)

    assert serving.wait_until_settled(session.token_id) is SessionStatus.COMPLETED
    # The fake PSP sends its webhook to the public base URL.
    serving.wait_for_webhook()
    # Adding the card has used the token.
    wait_until(lambda: serving.installation.access_tokens()[0].used_at)


# Shows S29.
def test_metrics_of_all_processes_are_served_without_personal_data(serving: Measured) -> None:
    def counts() -> list[float]:
        samples = serving.scrape()
        return [
            samples[REQUESTS].get(ADDED, 0),
            samples["sessions_ended_total"].get(("card_stored", ""), 0),
            sum(samples["cards_declined_total"].values()),
            samples["authentication_failures_total"].get(("unknown",), 0),
            samples["card_storing_seconds_count"].get(("fake",), 0),
        ]

    before = counts()
    with closing(serving.connect()) as connection:
        session = serving.opened_session(connection)
        connection.request("GET", ACCOUNTS, headers={"Authorization": f"bearer {'x' * 43}"})
        assert connection.getresponse().status == 401
    serving.installation.type_card(session, DECLINED_CARD)
    serving.installation.type_card(session, PREPAID_CARD)
    assert serving.wait_until_settled(session.token_id) is SessionStatus.COMPLETED
    wait_until(lambda: counts()[1] > before[1])

    assert [now - then for now, then in zip(counts(), before, strict=True)] == [1] * 5
    assert serving.scrape()["database_up"] == serving.scrape()["workers"] == {(): 1}
    text = serving.metrics_text()
    for secret in (GUEST_ID, CENTER_ID, session.token_id, serving.token[:12], "Ada", "web-shop"):
        assert secret not in text
    with closing(serving.metrics.connect()) as connection:
        connection.request("GET", ACCOUNTS, headers=serving.headers)
        assert connection.getresponse().read().startswith(b"# HELP ")
        connection.request("POST", ACCOUNTS, headers=serving.headers)
        assert connection.getresponse().status == 405


# Shows S29.
def test_a_metrics_client_that_sends_an_incomplete_request_is_disconnected(
    serving: Measured,
) -> None:
    with closing(connected(serving.metrics.port)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert serving.scrape()
        assert slow.recv(1) == b""


# Shows S14.
def test_a_request_body_is_read_only_up_to_the_limit_of_its_route(serving: Measured) -> None:
    def status(path: str, body: bytes | Iterator[bytes]) -> int:
        with closing(serving.connect()) as connection:
            # The server may answer and close the connection before it has read all.
            with suppress(ConnectionError):
                connection.request("POST", path, body, serving.headers)
            return connection.getresponse().status

    for path, limit in ((ACCOUNTS, 16 * 1024), ("/webhooks/fake", 256 * 1024)):
        assert status(path, b"x" * limit) == 400
        assert status(path, b"x" * (limit + 1024)) == 413
        # Without a length, and larger than what the buffers between the two hold.
        assert status(path, repeat(b"x" * 1024, 64 * 1024)) == 413
    assert status(ACCOUNTS, iter([BODY[:9], BODY[9:]])) == 200


# Shows S18.
def test_secrets_do_not_appear_in_the_log_or_the_process_list(serving: Measured) -> None:
    # Redis is away: that is logged, and limits hold without it.
    assert serving.status(ACCOUNTS) == 401
    wait_until(lambda: serving.lines("rate_limit_storage_away"))
    groups = {program.process.pid for program in serving.programs}
    commands = []
    for process in Path("/proc").glob("[0-9]*"):
        # Other processes of the machine may end meanwhile.
        with suppress(FileNotFoundError, ProcessLookupError):
            stat = (process / "stat").read_text().rpartition(") ")[2].split()
            if int(stat[2]) in groups:
                commands.append((process / "cmdline").read_bytes())

    assert len(commands) >= len(serving.programs)
    for shown in (*commands, *(program.log.read_bytes() for program in serving.programs)):
        assert b"s3cret" not in shown
        assert serving.token.encode() not in shown


# Shows S18.
def test_the_log_shows_the_steps_of_a_session_but_not_its_token_or_guest(serving: Measured) -> None:
    address = {"address": "17 Canary Wharf", "city": "Seattle", "zipcode": "98101"}
    body = json.dumps({**json.loads(BODY), "billing_info": {**address, "country_code": "US"}})

    def sent(method: str, path: str, request_id: str, body: str | None = None) -> bytes:
        headers = {**serving.headers, "X-Request-ID": request_id}
        with closing(serving.connect()) as connection:
            connection.request(method, path, body, headers)
            return connection.getresponse().read()

    token_id = TokenId(json.loads(sent("POST", ACCOUNTS, "life-1", body))["token_id"])
    session = serving.installation.session(token_id)
    link = {"token_id": token_id, "key": session.link_key, "redirect_uri": session.redirect_uri}
    sent("GET", f"/hosted-payments?{urlencode(link)}", "life-2")
    serving.installation.type_card(session, DECLINED_CARD)
    serving.installation.type_card(session, OTHER_GOOD_CARD)
    sent("GET", f"/hosted-payments/return?token_id={token_id}", "life-3")
    serving.wait_until_settled(token_id)
    account = serving.installation.account(serving.installation.session(token_id).account_id)
    sent("DELETE", f"{ACCOUNTS}/{account.account_id}", "life-4")
    wait_until(lambda: "life-4" in [each.get("request_id") for each in serving.lines("request")])

    of_session = [line for line in serving.lines() if line.get("session") == token_id[:8]]
    assert {line["event"] for line in of_session} == {
        *("session_created", "session_opened", "page_made"),
        *("card_declined", "card_collected", "card_stored"),
    }
    assert [line.get("request_id") for line in of_session[:3]] == ["life-1", "life-2", "life-2"]
    (removed,) = serving.lines("card_removed")
    assert (removed["caller"], removed["request_id"]) == (session.caller, "life-4")
    guest = guest_on_file(serving.installation.storage, session.guest_id)
    assert guest is not None
    assert guest.email is not None
    of_it = (token_id, str(session.link_key), session.redirect_uri)
    of_card = (account.token, account.guest_reference)
    personal = (guest.first_name, guest.last_name, guest.email, *address.values())
    for program in serving.programs:
        logged = program.log.read_text()
        assert [each for each in (*of_it, *of_card, *personal) if each in logged] == []


# Shows I1.
@only_on_granian
def test_adding_many_cards_concurrently_on_sqlite_loses_no_card(serving: Measured) -> None:
    def add_cards(_: int) -> list[TokenId]:
        with closing(serving.connect()) as connection:
            keys = [None, "a", None, "b", None, "c", None, "d", None, None, None, None]
            return [serving.add_card(connection, key=key) for key in keys]

    token_ids = {token_id for part in at_once(12, add_cards) for token_id in part}

    assert len(token_ids) == 12 * 8 + 4
    for token_id in token_ids:
        assert serving.installation.session(token_id).status is SessionStatus.OPEN
    # Each line is whole, and names its process.
    wait_until(lambda: len(serving.lines("request")) >= 12 * 12)
    added = [line for line in serving.lines("request") if line["method"] == "POST"]
    assert len({line["process"] for line in added}) > 1


@only_on_granian
def test_the_metrics_still_include_the_counts_of_a_process_that_ended(serving: Measured) -> None:
    def have_served() -> set[int]:
        serving.status("/")
        return {line["process"] for line in serving.lines("request")}

    before = have_served()
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: have_served() - before)

    not_found = [line for line in serving.lines("request") if line["status"] == 404]
    assert serving.scrape()[REQUESTS]["GET", "none", "404"] == len(not_found)


# Shows F9.
@only_on_granian
def test_requests_in_progress_are_finished_after_sigterm(serving: Measured) -> None:
    with ExitStack() as connections:
        begun = [connections.enter_context(closing(serving.begin_to_add_card())) for _ in range(3)]
        answered = len(serving.programs[0].lines("request"))

        def have_all_answered_since() -> bool:
            assert serving.status("/") == 404
            since = serving.programs[0].lines("request")[answered:]
            return len({line["process"] for line in since}) == 2

        # A process that has responded again has also read its parts of the requests that began.
        wait_until(have_all_answered_since)
        serving.programs[0].tell(signal.SIGTERM)
        wait_until(lambda: not serving.is_listening())
        token_ids = [end_adding_card(connection) for connection in begun]

    assert serving.programs[0].ends() == 0
    for token_id in token_ids:
        assert serving.installation.session(token_id).status is SessionStatus.OPEN


# Shows F48.
def test_a_process_of_a_wsgi_server_ends_when_a_file_of_its_database_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_database(tmp_path / "cards.db")
    monkeypatch.setenv("CARDONFILE_DATABASE_URL", f"sqlite:///{tmp_path}/cards.db")
    monkeypatch.setenv("CARDONFILE_PUBLIC_BASE_URL", GOOD["CARDONFILE_PUBLIC_BASE_URL"])
    client = testing.TestClient(wsgi.create_application())
    received: list[int] = []
    before = signal.signal(signal.SIGTERM, lambda number, _: received.append(number))
    try:
        assert client.simulate_get("/readyz").status_code == 200
        (tmp_path / "cards.db-wal").unlink()
        for _ in range(2):
            assert client.simulate_get("/readyz").status_code == 503
    finally:
        signal.signal(signal.SIGTERM, before)

    # The server stops a process gracefully.
    assert received == [signal.SIGTERM]


# Shows F48.
def test_a_process_of_granian_ends_when_the_log_of_its_sqlite_file_is_deleted(
    tmp_path: Path,
) -> None:
    with Serving(tmp_path, GRANIAN) as serving:
        process = serving.programs[0].lines("request")[0]["process"]
        Path(f"{serving.installation.database}-wal").unlink()

        def has_ended() -> bool:
            serving.status("/readyz")
            return not Path(f"/proc/{process}").exists()

        wait_until(has_ended)


NO_PSP: Final = {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"}
FOR_THE_FAKE_PSP: Final = "centers are configured for the PSP fake"
GOOD: Final = {"CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:8000"}


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [
        ({}, "CARDONFILE_PUBLIC_BASE_URL must be set to the address at which"),
        (NO_PSP, FOR_THE_FAKE_PSP),
        (
            {**GOOD, "CARDONFILE_DATABASE_URL": "sqlite:///missing.db"},
            "the database missing.db is missing or not up to date: run `cardonfile migrate`",
        ),
        (
            {**GOOD, "CARDONFILE_METRICS": "127.0.0.1:9464"},
            "under a WSGI server, CARDONFILE_METRICS needs CARDONFILE_METRICS_FOLDER",
        ),
    ],
    ids=["base URL", "PSP", "database", "metrics"],
)
def test_create_application_fails_if_the_installation_cannot_be_used(
    environment: dict[str, str],
    complaint: str,
    installation: Installation,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("CARDONFILE_DATABASE_URL", f"sqlite:///{installation.database}")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit) as ended:
        wsgi.create_application()

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {complaint}")
    assert ended.value.code == 1


def test_granian_ends_if_its_processes_cannot_work(tmp_path: Path) -> None:
    Installation(tmp_path).close()
    settings = {"CARDONFILE_DATABASE_URL": f"sqlite:///{tmp_path / 'cards.db'}", **NO_PSP}
    # If the process did not end, granian might go on for ever.
    options = (*GRANIAN_OPTIONS, "--no-respawn-failed-workers", "--port", str(free_port()))
    with Program(tmp_path, START_GRANIAN, *options, **settings) as program:
        assert program.ends() == 1
        # Several processes of granian may say the same.
        (line,) = set(program.log.read_text().splitlines())

    assert line.startswith(f"Error: {FOR_THE_FAKE_PSP}")


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"])
def test_the_new_application_has_no_open_database_connection_that_a_fork_would_share(
    tmp_path: Path, storage: str, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> None:
    def opened() -> set[str]:
        links = [file for file in Path("/proc/self/fd").iterdir() if file.is_symlink()]
        names = {str(file.readlink()) for file in links}
        return {name for name in names if ".db" in name or "socket" in name}

    with ExitStack() as stack:
        make_database(tmp_path / "cards.db")
        url = f"sqlite:///{tmp_path}/cards.db"
        if storage == "postgresql":
            server = request.getfixturevalue("postgresql_server")
            url = stack.enter_context(empty_database(server))
        for name, value in {**GOOD, "CARDONFILE_DATABASE_URL": url}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("CARDONFILE_LOG_LEVEL", "error")
        before = opened()

        wsgi.create_application()

        assert opened() <= before
        # Lines below the configured level are not logged.
        assert logging.getLogger().level == logging.ERROR
