"""The service under granian, with the worker beside it: real processes, with real signals."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.psp.contract.concurrency import at_once
from domain.card_sessions import SessionStatus
from domain.identifiers import TokenId
from tests.adapters.http.api import ACCOUNTS
from tests.databases import make_database
from tests.installation import Installation
from tests.postgresql import new_database
from tests.programs import SERVE, Program, free_port
from tests.redis_server import own_redis
from tests.serving import (
    GRANIAN,
    GRANIAN_OPTIONS,
    SERVERS,
    START_GRANIAN,
    Serving,
    end_adding_card,
    got,
)
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

# Prints what is open once the application is made.
MAKE_APPLICATION: Final = """
import os, sys
import entrypoints.wsgi
if sys.argv[1:] == ["make"]:
    entrypoints.wsgi.create_application()
links = [os.path.join("/proc/self/fd", each) for each in os.listdir("/proc/self/fd")]
opened = [os.readlink(each) for each in links if os.path.islink(each)]
wrong = [each for each in opened if ".db" in each or "socket" in each]
sys.exit(f"open: {wrong}" if wrong else 0)
"""


@pytest.mark.parametrize("server", SERVERS)
def test_a_card_is_stored_without_the_browser(tmp_path: Path, server: str) -> None:
    with Serving(tmp_path, server) as serving:
        with closing(serving.connect()) as connection:
            token_id = serving.add_card(connection)
            session = serving.installation.session(token_id)
            link = f"/hosted-payments?token_id={token_id}&redirect_uri={session.redirect_uri}"
            assert got(connection, link).status == 303
        serving.installation.type_card(session)

        assert serving.wait_until_settled(token_id) is SessionStatus.COMPLETED
        # The fake PSP's event came to where browsers reach the service.
        wait_until(lambda: _webhooks(serving))
        assert serving.stop() == [0] * len(serving.programs)


def _webhooks(serving: Serving) -> list[dict[str, object]]:
    lines = serving.lines("request")
    return [
        line for line in lines if (line["route"], line["status"]) == ("/webhooks/{provider}", 200)
    ]


def test_nothing_is_lost_when_many_cards_are_added_on_sqlite(tmp_path: Path) -> None:
    with Serving(tmp_path, GRANIAN, workers=3) as serving:

        def add_cards(_: int) -> list[TokenId]:
            with closing(serving.connect()) as connection:
                keys = [None, "a", None, "b", None, "c", None, "d", *([None] * 16)]
                return [serving.add_card(connection, key=key) for key in keys]

        token_ids = {token_id for part in at_once(12, add_cards) for token_id in part}

        assert len(token_ids) == 12 * 20 + 4
        for token_id in token_ids:
            assert serving.installation.session(token_id).status is SessionStatus.OPEN
        assert serving.stop() == [0, 0]
        # Each line is whole, and tells whose it is.
        added = [line for line in serving.lines("request") if line["method"] == "POST"]
        assert len(added) == 12 * 24
        assert len({line["process"] for line in added}) > 1


@pytest.mark.parametrize("server", SERVERS)
def test_sigterm_has_what_is_in_flight_finished(tmp_path: Path, server: str) -> None:
    with Serving(tmp_path, server) as serving, ExitStack() as connections:
        begun = [connections.enter_context(closing(serving.begin_to_add_card())) for _ in range(3)]
        # Those are with the server now.
        assert serving.status("/healthz") == 200

        serving.programs[0].tell(signal.SIGTERM)
        wait_until(lambda: not serving.is_listening())
        token_ids = [end_adding_card(connection) for connection in begun]

        assert serving.programs[0].ends() == 0
        for token_id in token_ids:
            assert serving.installation.session(token_id).status is SessionStatus.OPEN


def test_processes_that_share_a_redis_reach_a_limit_together(tmp_path: Path) -> None:
    with (
        own_redis() as redis,
        Serving(tmp_path, GRANIAN, workers=2, CARDONFILE_RATE_LIMIT_STORAGE=redis.url) as serving,
    ):

        def be_refused(_: int) -> list[int]:
            return [serving.status(ACCOUNTS) for _ in range(10)]

        answers = [status for part in at_once(4, be_refused) for status in part]
        refused = [line for line in serving.lines("request") if line["status"] == 401]

    assert sorted(answers) == [401] * 30 + [429] * 10
    assert len({line["process"] for line in refused}) == 2


@pytest.mark.parametrize("server", SERVERS)
def test_no_secret_is_in_the_log_or_in_the_list_of_processes(tmp_path: Path, server: str) -> None:
    secrets: dict[str, Any] = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_s3cret",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_s3cret",
        "CARDONFILE_RATE_LIMIT_STORAGE": "redis://:s3cret@127.0.0.1:1",
    }
    with Serving(tmp_path, server, **secrets) as serving:
        # Redis is away, which is told, and everything else goes on.
        assert serving.status(ACCOUNTS) == 401
        wait_until(lambda: serving.lines("rate_limit_storage_away"))
        groups = {program.process.pid for program in serving.programs}
        commands = []
        for process in Path("/proc").glob("[0-9]*"):
            # Others on the machine come and go.
            with suppress(FileNotFoundError, ProcessLookupError):
                stat = (process / "stat").read_text().rpartition(") ")[2].split()
                if int(stat[2]) in groups:
                    commands.append((process / "cmdline").read_bytes())
        assert serving.stop() == [0] * len(serving.programs)
        logs = [program.log.read_bytes() for program in serving.programs]

    assert len(commands) >= len(logs)
    for shown in (*logs, *commands):
        assert b"s3cret" not in shown
        assert serving.token.encode() not in shown


REFUSED: Final = {
    "no base URL": (
        {"CARDONFILE_PUBLIC_BASE_URL": ""},
        "CARDONFILE_PUBLIC_BASE_URL must say where",
    ),
    "a bad setting": ({"CARDONFILE_LOG_FORMAT": "xml"}, "CARDONFILE_LOG_FORMAT must be"),
    "a PSP that is not set up": (
        {"CARDONFILE_PUBLIC_BASE_URL": "https://cards.example"},
        "centers are configured for the PSP fake",
    ),
    "no database": (
        {"CARDONFILE_DATABASE_URL": "sqlite:///missing.db"},
        "the database missing.db is missing or not up to date: run `cardonfile migrate`",
    ),
}


@pytest.mark.parametrize(("wrong", "complaint"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize(
    "command",
    [(START_GRANIAN, "--port", "{port}", *GRANIAN_OPTIONS), (SERVE, "work")],
    ids=["granian", "work"],
)
def test_what_is_wrong_ends_in_one_sentence(
    tmp_path: Path, command: tuple[str, ...], wrong: dict[str, str], complaint: str
) -> None:
    installation = Installation(tmp_path)
    installation.close()
    settings = {
        "CARDONFILE_DATABASE_URL": f"sqlite:///{installation.settings.database}",
        "CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:8000",
        **wrong,
    }
    words = [word.format(port=free_port()) for word in command]
    with Program(tmp_path, *words, **settings) as program:
        assert program.ends() == 1
        (line,) = program.log.read_text().splitlines()

    assert line.startswith(f"Error: {complaint}")


@pytest.mark.parametrize("storage", ["sqlite", "postgresql"])
def test_nothing_is_open_over_a_fork(
    tmp_path: Path, storage: str, request: pytest.FixtureRequest
) -> None:
    with ExitStack() as stack:
        if storage == "sqlite":
            make_database(tmp_path / "cards.db")
            url = f"sqlite:///{tmp_path}/cards.db"
        else:
            server = request.getfixturevalue("postgresql_server")
            url = stack.enter_context(new_database(server))
        settings = {
            "CARDONFILE_DATABASE_URL": url,
            "CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:8000",
        }
        program = stack.enter_context(Program(tmp_path, MAKE_APPLICATION, "make", **settings))

        assert program.ends() == 0, program.log.read_text()
        assert "open:" not in program.log.read_text()


def test_an_import_reads_no_setting_and_opens_nothing(tmp_path: Path) -> None:
    wrong = {"CARDONFILE_DATABASE_URL": "nonsense", "CARDONFILE_LOG_FORMAT": "xml"}
    with Program(tmp_path, MAKE_APPLICATION, **wrong) as program:
        assert program.ends() == 0
        assert program.log.read_text() == ""


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("path", [ACCOUNTS, "/webhooks/fake"])
def test_no_body_is_read_beyond_what_its_route_takes(
    tmp_path: Path, server: str, path: str
) -> None:
    limit = 16 * 1024 if path == ACCOUNTS else 256 * 1024
    fits, too_large = [b"x" * limit], [b"x" * 1024] * (limit // 1024 + 1)
    with Serving(tmp_path, server) as serving:
        headers = {"Authorization": f"bearer {serving.token}", "Content-Type": "application/json"}

        def status(parts: list[bytes], *, chunked: bool) -> int:
            with closing(serving.connect()) as connection:
                body = iter(parts) if chunked else b"".join(parts)
                connection.request("POST", path, body, headers, encode_chunked=chunked)
                return connection.getresponse().status

        assert status(fits, chunked=False) == 400
        assert status(too_large, chunked=False) == 413
        assert status(too_large, chunked=True) == 413
        if path == ACCOUNTS:
            assert status(fits, chunked=True) == 400
            # What is chunked is read, too.
            with closing(serving.connect()) as connection:
                body = iter([json.dumps({"center_id": "x"}).encode()])
                connection.request("POST", path, body, headers, encode_chunked=True)
                answer = json.loads(connection.getresponse().read())
            assert answer["error"]["message"] == "Invalid center id"
