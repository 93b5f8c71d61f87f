"""`cardonfile serve`, `work` and `reconcile`."""

from __future__ import annotations

import gc
import logging
import resource
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1
from socket import gethostname

import pytest

from adapters.psp_suite.samples import a_uuid
from domain.identifiers import TokenId
from domain.sessions.end import SessionStatus
from domain.worker.heartbeat import SeenWorker, WorkerState
from tests.builders import a_session
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine
from tests.entrypoints.running import connected
from tests.programs import SERVE, Program, Server, free_port
from tests.waiting import wait_until


@contextmanager
def started(
    cardonfile: CommandLine, command: str, *options: str, program: str = SERVE
) -> Iterator[tuple[Program, Server]]:
    """Start a command in a separate process. Provide the process, and its server if it serves."""
    server, folder = Server(), cardonfile.folder / command
    server.port = free_port()
    folder.mkdir()
    port = {"serve": ("--port", str(server.port))}.get(command, ())
    settings = {
        **cardonfile.environment,
        "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{server.port}",
        "CARDONFILE_LOG_FORMAT": "json",
    }
    with Program(folder, program, command, *options, *port, **settings) as process:
        yield process, server


@pytest.mark.parametrize("level", ["info", "warning"])
def test_reconcile_deletes_old_records_and_prints_how_many_jobs_it_completed(
    with_center: CommandLine, level: str
) -> None:
    past = a_session().created_at - timedelta(days=3_650)
    old = a_session(
        token_id=TokenId(a_uuid(9)),
        status=SessionStatus.EXPIRED,
        ended_at=past,
        expires_at=past,
        due_at=None,
    )
    with committed(with_center.storage) as unit:
        unit.sessions.add(a_session(due_at=past, expires_at=past))
        unit.sessions.add(old)

    result = with_center.run("reconcile", CARDONFILE_LOG_LEVEL=level)

    assert result.stdout == (
        "settled 1 sessions, discarded 0 cards, delivered 0 events\n"
        "not finished: 0 open sessions, 0 sessions and discards whose PSP does not respond, "
        "0 events, 0 faults\n"
    )
    assert result.exit_code == 0
    assert ("reconciled" in result.stderr) is (level == "info")
    with with_center.storage.read() as unit:
        assert unit.sessions.get(old.token_id) is None


class TestServe:
    # Shows F48.
    def test_serve_stops_if_a_file_of_its_database_is_replaced(
        self, cardonfile: CommandLine
    ) -> None:
        with started(cardonfile, "serve", "--no-worker") as (program, server):
            program.wait_for("serving")
            assert server.status("/readyz") == 200
            Path(f"{cardonfile.database}-wal").unlink()
            assert server.status("/readyz") == 503
            assert program.ends() == 1
        assert len(program.lines("database_replaced")) == 1

    def test_serve_without_a_worker_leaves_due_work_to_another_process(
        self, cardonfile: CommandLine
    ) -> None:
        with started(cardonfile, "serve", "--no-worker") as (serving, _):
            serving.wait_for("serving")
            assert not self.workers(cardonfile)
            with started(cardonfile, "work") as (worker, _):
                wait_until(lambda: self.workers(cardonfile))
                worker.tell(SIGHUP)
                assert worker.ends() == 0
            # This signal has no meaning for the service, and does not stop it.
            serving.tell(SIGUSR1)
            serving.tell(SIGINT)
            assert serving.ends() == 0

        assert serving.lines("serving")[0]["database"] == str(cardonfile.database)
        assert worker.lines("working")
        for program in (serving, worker):
            assert program.lines()[-1]["event"] == "stopped"
        (stopped,) = self.workers(cardonfile)
        assert stopped.state is WorkerState.STOPPED
        assert (stopped.worker.host, stopped.worker.pid) == (gethostname(), worker.process.pid)
        assert stopped.worker.release == version("cardonfile")

    @staticmethod
    def workers(cardonfile: CommandLine) -> Sequence[SeenWorker]:
        with cardonfile.storage.read() as unit:
            return unit.workers.seen(datetime.now(UTC))

    def test_serve_refuses_an_address_that_is_already_in_use(
        self, cardonfile: CommandLine, taken_port: str
    ) -> None:
        complaint = f"cannot listen on 127.0.0.1 port {taken_port}"
        metrics = {"CARDONFILE_METRICS": f"127.0.0.1:{taken_port}"}

        assert cardonfile.refuses("serve", "--port", taken_port).startswith(complaint)
        refused = cardonfile.refuses("serve", "--port", str(free_port()), **metrics)
        assert refused.startswith(complaint)
        assert refused.endswith("choose another port with CARDONFILE_METRICS")

    @pytest.mark.parametrize(
        ("host", "complaint"),
        [
            ("192.0.2.1", "; use an address of this machine"),
            ("", "--host must be an IP address or the name of this machine"),
            ("h\u00f6st", "--host must be an IP address or the name of this machine"),
        ],
    )
    def test_serve_refuses_a_host_that_does_not_belong_to_this_machine(
        self, cardonfile: CommandLine, taken_port: str, host: str, complaint: str
    ) -> None:
        public = {"CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:8000"}
        refused = cardonfile.refuses("serve", "--host", host, "--port", taken_port, **public)
        assert refused.endswith(complaint)

    def test_the_refusal_to_serve_with_several_processes_recommends_granian(
        self, cardonfile: CommandLine
    ) -> None:
        complaint = cardonfile.refuses("serve", "--processes", "4")
        assert "run the application with granian (docs/scaling.md)" in complaint


@pytest.mark.parametrize("command", ["serve", "work"])
def test_log_lines_below_the_configured_log_level_are_not_written(
    cardonfile: CommandLine, taken_port: str, command: str
) -> None:
    # The command sets the log level before it listens.
    cardonfile.refuses(
        command,
        CARDONFILE_LOG_LEVEL="warning",
        CARDONFILE_METRICS=f"127.0.0.1:{taken_port}",
        CARDONFILE_PUBLIC_BASE_URL="http://127.0.0.1:8000",
    )

    assert logging.getLogger().level == logging.WARNING


@pytest.mark.parametrize(("command", "needed"), [("serve", 224), ("work", 88)])
def test_a_process_whose_limit_on_open_files_is_too_low_does_not_start(
    cardonfile: CommandLine, command: str, needed: int
) -> None:
    gc.collect()  # Garbage of other tests can hold more open files than this limit allows.
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed - 1, hard))
    try:
        complaint = cardonfile.refuses(command, CARDONFILE_PUBLIC_BASE_URL="http://127.0.0.1:8000")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    assert complaint.startswith(
        f"this process may open only {needed - 1} files, but needs {needed}"
    )


def test_serve_works_with_the_lowest_allowed_limit_on_open_files(cardonfile: CommandLine) -> None:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (224, 224)); {SERVE}"
    with (
        started(cardonfile, "serve", program=limited) as (program, server),
        ExitStack() as opened,
    ):
        program.wait_for("serving")
        idle = [opened.enter_context(connected(server.port)) for _ in range(224)]
        for each in idle:
            each.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n")
        assert not program.lines("service_unavailable")
        for each in idle:
            each.close()
        wait_until(lambda: server.status("/readyz") == 200)
        program.tell(SIGTERM)
        assert program.ends() == 0
    assert not program.lines("service_unavailable")
