"""Several processes on one address: real ones, with real signals."""

from __future__ import annotations

import http.client
import json
import os
import signal
import socket
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from types import TracebackType
from typing import Final, Self

import pytest
from click.testing import CliRunner
from typing_extensions import override

from domain.card_sessions import SessionStatus
from domain.identifiers import TokenId
from entrypoints.cli import main
from entrypoints.processes import (
    FIRST_PAUSE_SECONDS,
    LONGEST_PAUSE_SECONDS,
    SETTLED_SECONDS,
    pause_after,
)
from entrypoints.serve import listen
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.concurrency import at_once
from tests.installation import Installation
from tests.programs import DEADLINE_SECONDS, SERVE, Program, free_port
from tests.redis_server import own_redis
from tests.waiting import wait_until

pytestmark = pytest.mark.slow

IMPATIENT_SERVE: Final = f"from entrypoints import processes\nprocesses.FINISH_SECONDS = 2\n{SERVE}"

# Processes that do nothing: `work` is up to the test.
IDLE: Final = """
import sys, threading, time
from pathlib import Path
from entrypoints import processes
from entrypoints.logs import configure_logs
from entrypoints.settings import LogFormat

class Idle:
    def __init__(self): self.stopping = threading.Event()
    def run(self): self.stopping.wait()
    def stop(self): self.stopping.set()

def set_up_and_fail():
    raise RuntimeError

def set_up_when_told():
    while not Path("go").exists():
        time.sleep(0.01)
    return Idle()

configure_logs(LogFormat.JSON, name_process=True)
processes.FIRST_PAUSE_SECONDS = 0.05
together = processes.Processes(1, {set_up})
together.run()
sys.exit(together.finish())
"""


class Serving(Program):
    """`cardonfile serve` with several processes, on an installation."""

    def __init__(
        self, folder: Path, count: int, *, program: str = SERVE, **environment: str
    ) -> None:
        self.port = free_port()
        self.installation = Installation(folder, base_url=f"http://127.0.0.1:{self.port}")
        # The service has the real time.
        self.installation.clock.advance(datetime.now(UTC) - self.installation.clock.now())
        self.token = self.installation.token_for(self.installation.caller)
        arguments = ("serve", "--port", str(self.port), "--processes", str(count))
        super().__init__(
            folder,
            program,
            *arguments,
            CARDONFILE_DATABASE_URL=f"sqlite:///{self.installation.settings.database}",
            CARDONFILE_LOG_FORMAT="json",
            **environment,
        )
        self._count = count

    @override
    def __enter__(self) -> Self:
        try:
            self.wait_for("process_started", count=self._count)
            self.wait_until_all_answer()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    @override
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        super().__exit__(kind, error, traceback)
        self.installation.close()

    def connect(self) -> http.client.HTTPConnection:
        """Give a connection that is not open yet."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)

    def is_listening(self) -> bool:
        """Tell whether a new connection is taken."""
        with closing(socket.socket()) as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def get(self, path: str) -> http.client.HTTPResponse:
        """Ask for a page on a connection of its own."""
        with closing(self.connect()) as connection:
            return got(connection, path)

    def wait_until_all_answer(self) -> None:
        """Wait until each process has answered a request."""

        def have_answered() -> bool:
            at_once(8, lambda _: self.get("/healthz"))
            return {line["process"] for line in self.lines("request")} >= set(self.pids())

        wait_until(have_answered)

    def add_card(
        self, connection: http.client.HTTPConnection, *, key: str | None = None
    ) -> TokenId:
        """Add a card, which must succeed."""
        headers = self._headers() | ({"Idempotency-Key": key} if key else {})
        connection.request("POST", ACCOUNTS, body=_BODY, headers=headers)
        return answered(connection)

    def connect_to(self, pid: int) -> http.client.HTTPConnection:
        """Give a connection that one of the processes has taken."""
        connection = self.connect()
        with only(pid, among=self.pids()):
            connection.request("GET", "/healthz")
            assert connection.getresponse().read()
        assert self.lines("request")[-1]["process"] == pid
        return connection

    def begin_to_add_card(self, pid: int) -> http.client.HTTPConnection:
        """Have half a request in flight in one of the processes."""
        connection = self.connect_to(pid)
        connection.putrequest("POST", ACCOUNTS)
        for name, value in {**self._headers(), "Content-Length": str(len(_BODY))}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(_BODY[:5])
        return connection

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"bearer {self.token}", "Content-Type": "application/json"}


_BODY: Final = json.dumps(GOOD_BODY).encode()


def end_adding_card(connection: http.client.HTTPConnection) -> TokenId:
    """Send the other half; the request must succeed."""
    connection.send(_BODY[5:])
    return answered(connection)


def got(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    """Ask for a page, and give the answer, which has been read."""
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response


def answered(connection: http.client.HTTPConnection) -> TokenId:
    response = connection.getresponse()
    text = response.read()
    assert response.status == 200, text
    return TokenId(json.loads(text)["token_id"])


@contextmanager
def only(pid: int, *, among: Sequence[int]) -> Iterator[None]:
    """Have one of the processes run, and the others stand still.

    They must have been set up: whoever stands still may hold a lock.
    """
    others = [each for each in among if each != pid]
    for each in others:
        os.kill(each, signal.SIGSTOP)
    # A thread that is about to accept a connection does so before it stands still.
    wait_until(lambda: all(stands_still(each) for each in others))
    try:
        yield
    finally:
        for each in others:
            os.kill(each, signal.SIGCONT)


def stands_still(pid: int) -> bool:
    """Tell whether each thread of a process is stopped, as proc(5) has it."""
    stats = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
    return all(stat.read_text().rpartition(") ")[2].startswith("T") for stat in stats)


# Who answers.


def test_requests_are_answered_by_more_than_one_process(tmp_path: Path) -> None:
    with Serving(tmp_path, 3) as serving:
        serving.wait_until_all_answer()

        answering = {line["process"] for line in serving.lines("request")}
        assert len(answering) == 3
        assert serving.process.pid not in answering


def test_nothing_is_lost_when_many_cards_are_added_on_sqlite(tmp_path: Path) -> None:
    with Serving(tmp_path, 3) as serving:
        pids = serving.pids()
        connections = [serving.connect_to(pid) for pid in pids for _ in range(4)]

        def add_cards(number: int) -> list[TokenId]:
            with closing(connections[number]) as connection:
                keys = [None, "a", None, "b", None, "c", None, "d", *([None] * 16)]
                return [serving.add_card(connection, key=key) for key in keys]

        token_ids = {token_id for part in at_once(12, add_cards) for token_id in part}

        assert len(token_ids) == 12 * 20 + 4
        for token_id in token_ids:
            assert serving.installation.session(token_id).status is SessionStatus.OPEN
        serving.tell(signal.SIGTERM)
        assert serving.ends() == 0
        # Each line is whole, and tells whose it is.
        added = [line for line in serving.lines("request") if line["method"] == "POST"]
        assert len(added) == 12 * 24
        assert {line["process"] for line in added} == set(pids)
        assert all(isinstance(line["process"], int) for line in serving.lines())


def test_the_fake_psp_sends_each_event_once_and_is_announced_once(tmp_path: Path) -> None:
    with Serving(tmp_path, 3) as serving, closing(serving.connect()) as connection:
        cards = 20
        token_ids = [serving.add_card(connection) for _ in range(cards)]
        sessions = [serving.installation.session(token_id) for token_id in token_ids]
        for session in sessions:
            link = f"/hosted-payments?token_id={session.token_id}"
            assert serving.get(f"{link}&redirect_uri={session.redirect_uri}").status == 303
        # Behind the back of all three, so that all of them find the events at the same time.
        for session in sessions:
            serving.installation.type_card(session)

        def are_over() -> bool:
            now = [serving.installation.session(session.token_id).status for session in sessions]
            return SessionStatus.OPEN not in now

        wait_until(are_over)
        serving.tell(signal.SIGTERM)
        assert serving.ends() == 0
        sent = [line for line in serving.lines("request") if line["route"].startswith("/webhooks")]
        assert len(sent) == cards + len(serving.lines("webhook_not_taken"))
        (warning,) = serving.lines("fake_psp")
        assert "a second machine cannot see its file" in warning["note"]
        assert len(serving.lines("serving")) == 1


# Who ends, and who is started again.


def test_processes_that_share_a_redis_reach_a_limit_together(tmp_path: Path) -> None:
    with (
        own_redis() as redis,
        Serving(tmp_path, 2, CARDONFILE_RATE_LIMIT_STORAGE=redis.url) as serving,
    ):
        connections = [serving.connect_to(pid) for pid in serving.pids() for _ in range(2)]

        def be_refused(number: int) -> list[int]:
            with closing(connections[number]) as connection:
                return [got(connection, ACCOUNTS).status for _ in range(10)]

        answers = [status for part in at_once(4, be_refused) for status in part]

    assert sorted(answers) == [401] * 30 + [429] * 10


def test_no_secret_is_in_the_log_or_in_the_list_of_processes(tmp_path: Path) -> None:
    secrets = {
        "CARDONFILE_STRIPE_SECRET_KEY": "sk_test_s3cret",
        "CARDONFILE_STRIPE_WEBHOOK_SECRETS": "whsec_s3cret",
        "CARDONFILE_RATE_LIMIT_STORAGE": "redis://:s3cret@127.0.0.1:1",
    }
    with Serving(tmp_path, 2, **secrets) as serving:
        # Redis is away, which is told, and everything else goes on.
        assert serving.get(ACCOUNTS).status == 401
        serving.wait_for("rate_limit_storage_away", count=2)
        pids = (serving.process.pid, *serving.pids())
        commands = [Path(f"/proc/{pid}/cmdline").read_bytes() for pid in pids]
        serving.tell(signal.SIGTERM)
        assert serving.ends() == 0

    assert len(commands) == 3
    for shown in (serving.log.read_bytes(), *commands):
        assert b"s3cret" not in shown
        assert serving.token.encode() not in shown


def test_a_process_that_is_killed_is_replaced(tmp_path: Path) -> None:
    with Serving(tmp_path, 2) as serving:
        killed, other = serving.pids()

        os.kill(killed, signal.SIGKILL)

        serving.wait_for("process_died", pid=killed, signal=int(signal.SIGKILL))
        serving.wait_for("process_started", count=3)
        (new,) = set(serving.pids()) - {other}
        serving.wait_until_all_answer()
        with closing(serving.begin_to_add_card(new)) as connection:
            assert end_adding_card(connection)


def test_a_process_that_is_told_to_stop_finishes_its_requests_and_is_replaced(
    tmp_path: Path,
) -> None:
    with Serving(tmp_path, 2) as serving:
        recycled, other = serving.pids()
        with (
            closing(serving.begin_to_add_card(recycled)) as connection,
            closing(serving.begin_to_add_card(other)) as undisturbed,
        ):
            os.kill(recycled, signal.SIGTERM)

            assert end_adding_card(connection)
            assert connection.sock is None
            serving.wait_for("process_finished", pid=recycled)
            assert serving.get("/healthz").status == 200
            assert end_adding_card(undisturbed)
            assert undisturbed.sock is not None
        serving.wait_for("process_started", count=3)
        assert other in serving.pids()
        assert serving.lines("process_died") == []


def test_processes_that_fail_at_their_start_are_started_less_and_less_often(
    tmp_path: Path,
) -> None:
    with Program(tmp_path, IDLE.format(set_up="set_up_and_fail")) as program:
        program.wait_for("process_started", count=6)
        program.wait_for("process_died", count=6)
        program.tell(signal.SIGTERM)
        assert program.ends() == 0

        started = [
            datetime.fromisoformat(line["timestamp"]) for line in program.lines("process_started")
        ]
        pauses = [(later - earlier).total_seconds() for earlier, later in pairwise(started)]
        for pause, least in zip(pauses, [0.05, 0.1, 0.2, 0.4, 0.8], strict=True):
            assert pause >= least
        assert {line["fault"] for line in program.lines("process_fault")} == {"RuntimeError"}
        assert {line["status"] for line in program.lines("process_died")} == {1}


def test_pauses_grow_to_an_end_and_are_forgotten_once_a_process_has_lived() -> None:
    pauses = [0.0]
    for _ in range(10):
        pauses.append(pause_after(0, last_pause_seconds=pauses[-1]))

    assert pauses[1:3] == [FIRST_PAUSE_SECONDS, 2 * FIRST_PAUSE_SECONDS]
    assert pauses[-2:] == [LONGEST_PAUSE_SECONDS] * 2
    assert pause_after(SETTLED_SECONDS, last_pause_seconds=pauses[-1]) == 0


# The end of all.


def test_sigterm_has_every_process_finish_what_is_in_flight(tmp_path: Path) -> None:
    with Serving(tmp_path, 3) as serving, ExitStack() as connections:
        begun = [
            connections.enter_context(closing(serving.begin_to_add_card(pid)))
            for pid in serving.pids()
        ]

        serving.tell(signal.SIGTERM)
        wait_until(lambda: not serving.is_listening())
        serving.tell(signal.SIGTERM)
        token_ids = [end_adding_card(connection) for connection in begun]

        assert serving.ends() == 0
        for token_id in token_ids:
            assert serving.installation.session(token_id).status is SessionStatus.OPEN
        answers = [line for line in serving.lines("request") if line["method"] == "POST"]
        assert len({line["process"] for line in answers}) == 3
        assert len(serving.lines("process_finished")) == 3
        assert serving.lines()[-1]["event"] == "stopped"


def test_ctrl_c_reaches_all_processes_and_starts_none(tmp_path: Path) -> None:
    with Serving(tmp_path, 2) as serving:
        os.killpg(serving.process.pid, signal.SIGINT)

        assert serving.ends() == 0
        assert len(serving.lines("process_started")) == 2
        assert len(serving.lines("process_finished")) == 2


def test_without_their_parent_processes_finish_and_end(tmp_path: Path) -> None:
    with Serving(tmp_path, 2) as serving, ExitStack() as connections:
        begun = [
            connections.enter_context(closing(serving.begin_to_add_card(pid)))
            for pid in serving.pids()
        ]

        serving.tell(signal.SIGKILL)

        wait_until(lambda: not serving.is_listening())
        assert all(end_adding_card(connection) for connection in begun)
        assert serving.ends() == -signal.SIGKILL


def test_a_process_that_does_not_finish_is_killed_and_the_status_says_so(tmp_path: Path) -> None:
    with Serving(tmp_path, 2, program=IMPATIENT_SERVE) as serving:
        hanging, other = serving.pids()
        with closing(serving.begin_to_add_card(hanging)):
            serving.tell(signal.SIGTERM)

            assert serving.ends() == 1
        assert [line["pid"] for line in serving.lines("process_killed")] == [hanging]
        assert [line["pid"] for line in serving.lines("process_finished")] == [other]
        assert serving.log.read_text().endswith(
            "Error: 1 of 2 processes did not finish their requests\n"
        )


def test_a_signal_that_comes_before_the_work_is_set_up_is_not_lost(tmp_path: Path) -> None:
    with Program(tmp_path, IDLE.format(set_up="set_up_when_told")) as program:
        program.wait_for("process_started")

        program.tell(signal.SIGTERM)
        (tmp_path / "go").touch()

        assert program.ends() == 0
        assert len(program.lines("process_finished")) == 1


# What is refused, before anything is forked.


def test_an_address_that_is_taken_is_refused_once(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    with closing(listen("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        complaint = refusal(tmp_path, "--port", str(port))
    installation.close()

    assert complaint.startswith(f"Error: cannot listen on 127.0.0.1 port {port}: ")


def test_a_psp_that_is_not_allowed_is_refused_once(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    complaint = refusal(
        tmp_path,
        "--port",
        str(free_port()),
        CARDONFILE_PUBLIC_BASE_URL="https://cards.example",
    )
    installation.close()

    assert complaint.startswith("Error: centers are configured for the fake PSP")


def test_a_client_of_redis_that_is_missing_is_refused_once(tmp_path: Path) -> None:
    installation = Installation(tmp_path)
    without_redis = f"import sys\nsys.modules['redis'] = None\n{SERVE}"
    complaint = refusal(
        tmp_path,
        "--port",
        str(free_port()),
        program=without_redis,
        CARDONFILE_RATE_LIMIT_STORAGE="redis://:s3cret@127.0.0.1",
    )
    installation.close()

    assert complaint == (
        "Error: CARDONFILE_RATE_LIMIT_STORAGE is set, and the client of Redis is not installed: "
        "install the extra `redis`\n"
    )


def test_a_database_that_is_not_up_to_date_is_refused_once(tmp_path: Path) -> None:
    complaint = refusal(tmp_path, "--port", str(free_port()))

    assert "run `cardonfile migrate`" in complaint


@pytest.mark.parametrize("count", ["0", "65", "two"])
def test_a_number_that_is_no_number_of_processes_is_refused(tmp_path: Path, count: str) -> None:
    result = CliRunner().invoke(main, ["serve", "--processes", count])

    assert result.exit_code == 2
    assert "--processes" in result.stderr


def refusal(folder: Path, *arguments: str, program: str = SERVE, **environment: str) -> str:
    """Start three processes, which must be refused in one sentence; give it."""
    database = {"CARDONFILE_DATABASE_URL": f"sqlite:///{folder / 'cards.db'}"}
    more = ("--processes", "3", *arguments)
    with Program(folder, program, "serve", *more, **database, **environment) as refused:
        assert refused.ends() == 1
        complaint = refused.log.read_text()
    assert complaint.count("\n") == 1
    return complaint
