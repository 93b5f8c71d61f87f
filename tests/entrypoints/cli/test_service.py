"""`cardonfile serve`, `work` and `reconcile`."""

from __future__ import annotations

import logging
import resource
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from pathlib import Path
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1
from socket import gethostname

import pytest

from domain.sessions.end import SessionStatus
from domain.worker.heartbeat import SeenWorker, WorkerState
from tests.builders import a_session
from tests.databases import committed
from tests.entrypoints.conftest import CommandLine
from tests.entrypoints.running import connected
from tests.programs import SERVE, Program, Server, free_port
from tests.waiting import LIMIT_SECONDS, wait_until


@pytest.mark.parametrize("level", ["info", "warning"])
def test_reconcile_prints_the_number_of_completed_jobs(
    with_center: CommandLine, level: str
) -> None:
    past = a_session().created_at - timedelta(days=3_650)
    with committed(with_center.storage) as unit:
        unit.sessions.add(a_session(due_at=past, expires_at=past))

    result = with_center.run("reconcile", CARDONFILE_LOG_LEVEL=level)

    assert result.stdout == (
        "settled 1 sessions, discarded 0 cards, delivered 0 events\n"
        "left 0 sessions open, 0 sessions and discards waiting for their PSP, "
        "0 events not delivered, 0 faults\n"
    )
    assert result.exit_code == 0
    assert ("reconciled" in result.stderr) is (level == "info")


def test_reconcile_deletes_old_records(with_center: CommandLine) -> None:
    long_ago = a_session().created_at - timedelta(days=3_650)
    old = a_session(
        status=SessionStatus.EXPIRED, ended_at=long_ago, expires_at=long_ago, due_at=None
    )
    with committed(with_center.storage) as unit:
        unit.sessions.add(old)

    with_center.succeeds("reconcile", CARDONFILE_LOG_LEVEL="warning")

    with with_center.storage.read() as unit:
        assert unit.sessions.get(old.token_id) is None


class TestServe:
    # Shows F48.
    def test_serve_stops_if_a_file_of_its_database_is_replaced(
        self, cardonfile: CommandLine
    ) -> None:
        server = Server()
        server.port = free_port()
        with cardonfile.start("serve", "--no-worker", "--port", str(server.port)) as process:
            assert process.stderr is not None
            assert b"serving" in process.stderr.readline()
            assert server.status("/readyz") == 200
            Path(f"{cardonfile.database}-wal").unlink()
            assert server.status("/readyz") == 503
            _, logged = process.communicate(timeout=LIMIT_SECONDS)

        assert process.returncode == 1
        assert logged.count(b"database_replaced") == 1

    # Shows F9.
    def test_serve_without_a_worker_leaves_due_work_to_another_process(
        self, cardonfile: CommandLine
    ) -> None:
        port = str(free_port())
        with cardonfile.start("serve", "--no-worker", "--port", port) as serving:
            assert serving.stderr is not None
            line = serving.stderr.readline()
            assert b"serving" in line
            assert f"database='{cardonfile.database}'".encode() in line
            assert not self.workers(cardonfile)
            cardonfile.environment["CARDONFILE_PUBLIC_BASE_URL"] = f"http://127.0.0.1:{port}"
            with cardonfile.start("work") as worker:
                wait_until(lambda: self.workers(cardonfile))
                worker.send_signal(SIGHUP)
                _, logged = worker.communicate(timeout=LIMIT_SECONDS)
            # This signal has no meaning for the service, and does not stop it.
            serving.send_signal(SIGUSR1)
            serving.send_signal(SIGINT)
            printed, stopping = serving.communicate(timeout=LIMIT_SECONDS)

        assert (serving.returncode, worker.returncode, printed) == (0, 0, b"")
        assert b"working" in logged
        for each in (logged, stopping):
            assert b"stopped" in each
            assert b"Traceback" not in each
        (stopped,) = self.workers(cardonfile)
        assert stopped.state is WorkerState.STOPPED
        assert (stopped.worker.host, stopped.worker.pid) == (gethostname(), worker.pid)
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
            ("h\u00f6st", "--host must be an IP address or the name of this machine"),
        ],
    )
    def test_serve_refuses_a_host_that_does_not_belong_to_this_machine(
        self, cardonfile: CommandLine, host: str, complaint: str
    ) -> None:
        public = {"CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:8000"}
        assert cardonfile.refuses("serve", "--host", host, **public).endswith(complaint)

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
    server = Server()
    server.port = free_port()
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (224, 224)); {SERVE}"
    environment = {
        **cardonfile.environment,
        "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{server.port}",
        "CARDONFILE_LOG_FORMAT": "json",
    }
    with (
        Program(
            cardonfile.folder, limited, "serve", "--port", str(server.port), **environment
        ) as program,
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
