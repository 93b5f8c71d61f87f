"""The service in real processes: `cardonfile serve`, and granian beside a worker."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Iterator
from contextlib import ExitStack, closing, suppress
from datetime import timedelta
from itertools import repeat
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest

from adapters.psp_suite.concurrency import at_once
from domain.identifiers import TokenId
from domain.sessions.end import SessionStatus
from entrypoints import wsgi
from tests.adapters.http.api import ACCOUNTS
from tests.databases import guest_on_file, make_database
from tests.installation import DECLINED_CARD, OTHER_GOOD_CARD, Installation
from tests.postgresql import new_database
from tests.programs import SERVE, Program, free_port, got
from tests.serving import (
    BODY,
    GRANIAN,
    GRANIAN_OPTIONS,
    SERVERS,
    START_GRANIAN,
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


@pytest.fixture(scope="module", params=SERVERS)
def serving(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Serving]:
    with Serving(tmp_path_factory.mktemp("serving"), request.param, **SECRETS) as serving:
        yield serving
        assert serving.stop() == [0] * len(serving.programs)


# Shows F27.
def test_a_card_is_stored_by_the_webhook_even_if_the_browser_never_returns(
    serving: Serving,
) -> None:
    with closing(serving.connect()) as connection:
        token_id = serving.add_card(connection)
        session = serving.installation.session(token_id)
        link = f"/hosted-payments?key={session.link_key}&redirect_uri={session.redirect_uri}"
        assert got(connection, link).status == 303
    serving.installation.type_card(session)

    assert serving.wait_until_settled(token_id) is SessionStatus.COMPLETED
    # The fake PSP sends its webhook to the public base URL.
    serving.wait_for_webhook()


def test_the_time_of_a_tokens_last_use_is_stored(serving: Serving) -> None:
    with closing(serving.connect()) as connection:
        connection.request("GET", ACCOUNTS, headers=serving.headers)
        assert connection.getresponse().status == 200

    (token,) = serving.installation.access_tokens()
    used_at = wait_until(lambda: serving.installation.access_tokens()[0].used_at)
    assert token.issued_at - timedelta(hours=1) < used_at


# Shows S14.
@pytest.mark.parametrize(
    ("path", "limit"),
    [(ACCOUNTS, 16 * 1024), ("/webhooks/fake", 256 * 1024)],
    ids=["add-card", "webhook"],
)
def test_a_request_body_is_read_only_up_to_the_limit_of_its_route(
    serving: Serving, path: str, limit: int
) -> None:
    def status(body: bytes | Iterator[bytes]) -> int:
        with closing(serving.connect()) as connection:
            # The server may answer and close the connection before it has read all.
            with suppress(ConnectionError):
                connection.request("POST", path, body, serving.headers)
            return connection.getresponse().status

    assert status(b"x" * limit) == 400
    assert status(b"x" * (limit + 1024)) == 413
    # Without a length, and larger than what the buffers between the two hold.
    assert status(repeat(b"x" * 1024, 64 * 1024)) == 413
    if path == ACCOUNTS:
        assert status(iter([BODY[:9], BODY[9:]])) == 200


# Shows S18.
def test_secrets_do_not_appear_in_the_log_or_the_process_list(serving: Serving) -> None:
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
def test_the_log_shows_the_steps_of_a_session_but_not_its_token_or_guest(serving: Serving) -> None:
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


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serving]:
    """Run two processes that share an SQLite file. The last test stops them."""
    with Serving(tmp_path_factory.mktemp("processes"), GRANIAN, workers=2) as serving:
        yield serving


# Shows I1.
def test_adding_many_cards_concurrently_on_sqlite_loses_no_card(processes: Serving) -> None:
    def add_cards(_: int) -> list[TokenId]:
        with closing(processes.connect()) as connection:
            keys = [None, "a", None, "b", None, "c", None, "d", None, None, None, None]
            return [processes.add_card(connection, key=key) for key in keys]

    token_ids = {token_id for part in at_once(12, add_cards) for token_id in part}

    assert len(token_ids) == 12 * 8 + 4
    for token_id in token_ids:
        assert processes.installation.session(token_id).status is SessionStatus.OPEN
    # Each line is whole, and names its process.
    wait_until(lambda: len(processes.lines("request")) >= 12 * 12)
    added = [line for line in processes.lines("request") if line["method"] == "POST"]
    assert len({line["process"] for line in added}) > 1


# Shows F9.
def test_requests_in_progress_are_finished_after_sigterm(processes: Serving) -> None:
    with ExitStack() as connections:
        begun = [
            connections.enter_context(closing(processes.begin_to_add_card())) for _ in range(3)
        ]
        answered = len(processes.programs[0].lines("request"))

        def have_all_answered_since() -> bool:
            assert processes.status("/") == 404
            since = processes.programs[0].lines("request")[answered:]
            return len({line["process"] for line in since}) == 2

        # A process that has responded again has also read its parts of the requests that began.
        wait_until(have_all_answered_since)
        processes.programs[0].tell(signal.SIGTERM)
        wait_until(lambda: not processes.is_listening())
        token_ids = [end_adding_card(connection) for connection in begun]

    assert processes.programs[0].ends() == 0
    for token_id in token_ids:
        assert processes.installation.session(token_id).status is SessionStatus.OPEN


# Shows F48.
def test_granian_processes_stop_when_a_file_of_their_database_is_replaced(tmp_path: Path) -> None:
    with Serving(tmp_path, GRANIAN, workers=2) as serving:
        granian, _ = serving.programs
        first = {line["process"] for line in granian.lines("serving")}
        Path(f"{serving.installation.database}-wal").unlink()

        def have_both_ended() -> bool:
            # Whichever process answers notices it.
            serving.status("/readyz")
            return not any(Path(f"/proc/{process}").exists() for process in first)

        wait_until(have_both_ended)
        replaced = [line["process"] for line in granian.lines("database_replaced")]

    # Once granian cannot start another process, it ends those that have noticed nothing yet.
    assert len(replaced) == len(set(replaced)) > 0


ONCE: Final = "--no-respawn-failed-workers"
Wrong = tuple[dict[str, str], str]
GOOD: Final = {"CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:8000"}
NO_BASE_URL: Final[Wrong] = ({}, "CARDONFILE_PUBLIC_BASE_URL must be set to the address at which")
NO_PSP: Final[Wrong] = (
    {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"},
    "centers are configured for the PSP fake",
)
NO_DATABASE: Final[Wrong] = (
    {**GOOD, "CARDONFILE_DATABASE_URL": "sqlite:///missing.db"},
    "the database missing.db is missing or not up to date: run `cardonfile migrate`",
)


@pytest.mark.parametrize(
    ("environment", "complaint"),
    [NO_BASE_URL, NO_PSP, NO_DATABASE],
    ids=["base URL", "PSP", "database"],
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
    monkeypatch.setenv("CARDONFILE_LOG_LEVEL", "error")

    with pytest.raises(SystemExit) as ended:
        wsgi.create_application()

    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: {complaint}")
    assert ended.value.code == 1
    if environment:
        # The settings could be read, so lines below this level are not logged.
        assert logging.getLogger().level == logging.ERROR


@pytest.mark.parametrize(
    ("command", "wrong"),
    [
        # If the process did not end, granian might go on for ever.
        ((START_GRANIAN, *GRANIAN_OPTIONS, ONCE, "--port", "{port}"), NO_PSP),
        ((SERVE, "work"), NO_PSP),
    ],
    ids=["granian", "work"],
)
def test_a_server_process_that_cannot_work_ends_with_one_sentence(
    tmp_path: Path, command: tuple[str, ...], wrong: Wrong
) -> None:
    Installation(tmp_path).close()
    environment, complaint = wrong
    settings = {"CARDONFILE_DATABASE_URL": f"sqlite:///{tmp_path / 'cards.db'}", **environment}
    words = [word.format(port=free_port()) for word in command]
    with Program(tmp_path, *words, **settings) as program:
        assert program.ends() == 1
        # Several processes of granian may say the same.
        (line,) = set(program.log.read_text().splitlines())

    assert line.startswith(f"Error: {complaint}")


# Reports what is open once the application is made.
MAKE_APPLICATION: Final = """
import json, os, sys
import entrypoints.wsgi
os.environ.update(json.loads(sys.argv[1]))
entrypoints.wsgi.create_application()
links = [os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd")]
opened = [os.readlink(each) for each in links if os.path.islink(each)]
wrong = [each for each in opened if ".db" in each or "socket" in each]
sys.exit(f"open: {wrong}" if wrong else 0)
"""


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"])
def test_importing_the_application_leaves_no_database_connection_open_across_a_fork(
    tmp_path: Path, storage: str, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        if storage == "sqlite":
            make_database(tmp_path / "cards.db")
            url = f"sqlite:///{tmp_path}/cards.db"
        else:
            server = request.getfixturevalue("postgresql_server")
            url = stack.enter_context(new_database(server))
        settings = json.dumps({**GOOD, "CARDONFILE_DATABASE_URL": url})
        program = stack.enter_context(
            Program(tmp_path, MAKE_APPLICATION, settings, CARDONFILE_DATABASE_URL="nonsense")
        )

        assert program.ends() == 0, program.log.read_text()
