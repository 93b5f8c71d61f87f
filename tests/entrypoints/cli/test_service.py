"""`cardonfile serve`, `work` and `reconcile`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from importlib.metadata import version
from signal import SIGHUP, SIGINT, SIGTERM, SIGUSR1
from socket import gethostname

import pytest

from domain.worker.heartbeat import SeenWorker, WorkerState
from tests.builders import CENTER_ID, a_session
from tests.entrypoints.conftest import CommandLine
from tests.programs import free_port
from tests.waiting import wait_until

DEADLINE_SECONDS = 60


@pytest.mark.parametrize("level", ["info", "warning"])
def test_reconcile_counts_what_it_has_done(with_center: CommandLine, level: str) -> None:
    past = a_session().created_at - timedelta(days=3_650)
    with with_center.storage.write() as unit:
        unit.sessions.add(a_session(due_at=past, expires_at=past))
        unit.commit()

    result = with_center.run("reconcile", CARDONFILE_LOG_LEVEL=level)

    assert result.stdout == (
        "settled 1 sessions, discarded 0 cards, delivered 0 events\n"
        "left 0 sessions open, 0 sessions and discards waiting for their PSP, "
        "0 events not delivered, 0 faults\n"
    )
    assert result.exit_code == 0
    assert ("reconciled" in result.stderr) is (level == "info")


class TestServe:
    # Shows F9.
    def test_runs_until_it_is_told_to_stop(self, cardonfile: CommandLine) -> None:
        with cardonfile.start("serve", "--port", str(free_port())) as process:
            assert process.stderr is not None
            line = process.stderr.readline()
            assert b"serving" in line
            assert f"database='{cardonfile.database}'".encode() in line
            # It means nothing, and stops nothing.
            process.send_signal(SIGUSR1)
            process.send_signal(SIGTERM)
            printed, logged = process.communicate(timeout=DEADLINE_SECONDS)

        assert (process.returncode, printed) == (0, b"")
        assert b"stopped" in logged
        assert b"Traceback" not in logged

    def test_without_worker_it_leaves_the_work_to_another(self, cardonfile: CommandLine) -> None:
        port = str(free_port())
        with cardonfile.start("serve", "--no-worker", "--port", port) as process:
            assert process.stderr is not None
            assert b"serving" in process.stderr.readline()
            assert not self.workers(cardonfile)
            cardonfile.environment["CARDONFILE_PUBLIC_BASE_URL"] = f"http://127.0.0.1:{port}"
            with cardonfile.start("work") as worker:
                wait_until(lambda: self.workers(cardonfile))
                worker.send_signal(SIGHUP)
                _, logged = worker.communicate(timeout=DEADLINE_SECONDS)
            process.send_signal(SIGINT)
            process.communicate(timeout=DEADLINE_SECONDS)

        assert (process.returncode, worker.returncode) == (0, 0)
        assert b"working" in logged
        assert b"stopped" in logged
        (stopped,) = self.workers(cardonfile)
        assert stopped.state is WorkerState.STOPPED
        assert (stopped.worker.host, stopped.worker.pid) == (gethostname(), worker.pid)
        assert stopped.worker.release == version("cardonfile")

    @staticmethod
    def workers(cardonfile: CommandLine) -> Sequence[SeenWorker]:
        with cardonfile.storage.read() as unit:
            return unit.workers.seen(datetime.now(UTC))

    def test_what_lets_others_in_is_warned_of_once_with_what_to_do(
        self, with_center: CommandLine
    ) -> None:
        public = {
            "CARDONFILE_PUBLIC_BASE_URL": "https://cards.example",
            "CARDONFILE_ALLOW_FAKE_PSP": "1",
        }
        with_center.environment |= public
        with_center.run("configure-payments", CENTER_ID, "--provider", "fake")
        with_center.database.chmod(0o644)

        with with_center.start("serve", "--port", str(free_port())) as process:
            assert process.stderr is not None
            lines = [process.stderr.readline().decode() for _ in range(3)]
            process.send_signal(SIGHUP)
            lines += process.communicate(timeout=DEADLINE_SECONDS)[1].decode().splitlines()
        assert process.returncode == 0
        (files,) = (line for line in lines if "database_open_to_all" in line)
        assert f"files=['{with_center.database}']" in files
        assert "chmod 600" in files
        (anywhere,) = (line for line in lines if "redirects_to_anywhere" in line)
        assert "centers=1" in anywhere
        assert "configure-payments --redirect-origin" in anywhere

    def test_an_address_that_is_taken_is_refused(
        self, cardonfile: CommandLine, taken_port: str
    ) -> None:
        assert cardonfile.refuses("serve", "--port", taken_port).startswith(
            f"cannot listen on 127.0.0.1 port {taken_port}"
        )

    def test_an_address_of_metrics_that_is_taken_is_refused(
        self, cardonfile: CommandLine, taken_port: str
    ) -> None:
        address = f"127.0.0.1:{taken_port}"
        complaint = cardonfile.refuses(
            "serve", "--port", str(free_port()), CARDONFILE_METRICS=address
        )

        assert complaint.startswith(f"cannot listen on 127.0.0.1 port {taken_port}")
        assert complaint.endswith("CARDONFILE_METRICS takes another")

    @pytest.mark.parametrize("host", ["nobody.invalid", "192.0.2.1"])
    def test_a_host_of_another_machine_is_refused(self, cardonfile: CommandLine, host: str) -> None:
        complaint = cardonfile.refuses(
            *("serve", "--host", host), CARDONFILE_PUBLIC_BASE_URL="http://127.0.0.1:8000"
        )
        assert complaint.endswith("; name an address of this machine")

    @pytest.mark.parametrize("host", ["", "h\u00f6st"])
    def test_a_host_that_is_none_is_refused(self, cardonfile: CommandLine, host: str) -> None:
        assert "--host must be" in cardonfile.refuses("serve", "--host", host)

    def test_several_processes_are_refused_in_a_sentence_that_names_granian(
        self, cardonfile: CommandLine
    ) -> None:
        complaint = cardonfile.refuses("serve", "--processes", "4")

        assert "run the application with granian (docs/scaling.md)" in complaint
