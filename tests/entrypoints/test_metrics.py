"""Metrics of real processes, and what is served beside them: nothing."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

import pytest

from adapters.psp.contract.samples import GUEST_ID
from domain.sessions.session import SessionStatus
from entrypoints import wsgi
from tests.adapters.http.api import ACCOUNTS
from tests.builders import CENTER_ID
from tests.entrypoints.conftest import CommandLine
from tests.installation import DECLINED_CARD
from tests.programs import ROOT, SERVE, TO_FULL_DISK, Server, free_port, got
from tests.scraping import Samples, samples_of
from tests.serving import GRANIAN, SERVERS, WAITRESS, Serving
from tests.waiting import wait_until

ADDED: Final = ("POST", "/api/v1/guests/{guest_id}/accounts", "200")
REQUESTS: Final = "http_request_duration_seconds_count"


class Metrics(Server):
    """Where Prometheus would ask."""

    def __init__(self) -> None:
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def text(self) -> str:
        """Return what Prometheus would get."""
        with closing(self.connect()) as connection:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            assert response.status == 200
            return response.read().decode()

    def scrape(self) -> Samples:
        return samples_of(self.text())


@contextmanager
def measured(
    folder: Path, server: str, *, program: str = SERVE, workers: int = 1
) -> Iterator[tuple[Serving, Metrics]]:
    metrics = Metrics()
    (folder / "serving").mkdir()
    settings = {"CARDONFILE_METRICS": metrics.address}
    if server == GRANIAN:
        settings["CARDONFILE_METRICS_FOLDER"] = str(folder / "metrics")
    with Serving(
        folder / "serving", server, program=program, workers=workers, **settings
    ) as serving:
        yield serving, metrics


# Shows S29.
@pytest.mark.parametrize("server", SERVERS)
def test_what_processes_count_is_served_without_saying_of_whom(tmp_path: Path, server: str) -> None:
    with measured(tmp_path, server) as (serving, metrics):
        with closing(serving.connect()) as connection:
            token_id = serving.add_card(connection)
            link = f"/hosted-payments?token_id={token_id}&redirect_uri="
            shop = serving.installation.session(token_id).redirect_uri
            assert got(connection, link + shop).status == 303
            connection.request("GET", ACCOUNTS, headers={"Authorization": f"bearer {'x' * 43}"})
            assert connection.getresponse().status == 401
        session = serving.installation.session(token_id)
        serving.installation.type_card(session, DECLINED_CARD)
        serving.installation.type_card(session)
        assert serving.wait_until_settled(token_id) is SessionStatus.COMPLETED
        wait_until(lambda: metrics.scrape()["sessions_ended_total"])

        samples = metrics.scrape()
        assert samples[REQUESTS][ADDED] == 1
        assert samples["sessions_ended_total"] == {("card_stored", ""): 1}
        assert sum(samples["cards_declined_total"].values()) == 1
        assert samples["authentication_failures_total"] == {("unknown",): 1}
        assert samples["card_storing_seconds_count"] == {("fake",): 1}
        assert samples["database_up"] == {(): 1}
        assert samples["workers"] == {(): 1}
        text = metrics.text()
        for secret in (GUEST_ID, CENTER_ID, token_id, serving.token[:12], "Ada", "web-shop"):
            assert secret not in text
        with closing(metrics.connect()) as connection:
            connection.request("GET", ACCOUNTS, headers=serving.headers)
            assert connection.getresponse().read().startswith(b"# HELP ")
            connection.request("POST", ACCOUNTS, headers=serving.headers)
            assert connection.getresponse().status == 405
        assert serving.stop() == [0] * len(serving.programs)


def test_the_count_of_a_process_outlives_it(tmp_path: Path) -> None:
    with measured(tmp_path, GRANIAN, workers=2) as (serving, metrics):

        def have_served() -> set[int]:
            serving.status("/")
            return {line["process"] for line in serving.lines("request")}

        before = have_served()
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: have_served() - before)

        counted = metrics.scrape()[REQUESTS]["GET", "none", "404"]
        assert counted == sum(line["status"] == 404 for line in serving.lines("request"))


def test_lines_of_the_log_that_cannot_be_written_are_counted(tmp_path: Path) -> None:
    with measured(tmp_path, WAITRESS, program=TO_FULL_DISK + SERVE) as (serving, metrics):
        before = metrics.scrape()["log_lines_lost_total"][()]
        assert serving.status("/") == 404

        assert metrics.scrape()["log_lines_lost_total"] == {(): before + 1}


@pytest.mark.parametrize("other", ["runs", "has ended"])
def test_files_of_processes_that_have_ended_stay_while_one_of_them_runs(
    cardonfile: CommandLine, tmp_path: Path, other: str
) -> None:
    folder = tmp_path / "metrics"
    folder.mkdir()
    ended, running = folder / "counter_99999999.db", folder / f"histogram_{os.getpid()}.db"
    kept = [folder / "cardonfile.db", folder / "counter.db", folder / "counter_x_1.db"]
    for file in (ended, *kept, *([running] if other == "runs" else [])):
        file.touch()
    cardonfile.environment |= {
        "CARDONFILE_METRICS_FOLDER": str(folder),
        "CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:1",
    }
    with cardonfile.start("work") as worker:
        assert worker.stderr is not None
        assert b"working" in worker.stderr.readline()
        worker.send_signal(signal.SIGTERM)
        worker.communicate(timeout=40)

    assert ended.exists() is (other == "runs")
    assert all(file.exists() for file in kept)


def test_only_the_process_with_the_worker_serves_what_is_in_a_folder(
    cardonfile: CommandLine, tmp_path: Path
) -> None:
    metrics, port = Metrics(), free_port()
    cardonfile.environment |= {
        "CARDONFILE_METRICS": metrics.address,
        "CARDONFILE_METRICS_FOLDER": str(tmp_path / "metrics"),
        "CARDONFILE_PUBLIC_BASE_URL": f"http://127.0.0.1:{port}",
    }
    with (
        cardonfile.start("serve", "--no-worker", "--port", str(port)) as server,
        cardonfile.start("work") as worker,
    ):
        wait_until(lambda: metrics.status("/metrics") == 200)
        api = Server()
        api.port = port
        wait_until(lambda: api.status("/healthz") == 200)
        assert metrics.scrape()[REQUESTS]["GET", "/healthz", "200"] == 1
        for process in (server, worker):
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=40)
        assert (server.returncode, worker.returncode) == (0, 0)


def test_a_folder_that_cannot_be_made_is_refused(cardonfile: CommandLine) -> None:
    folder = cardonfile.folder / "missing" / "metrics"

    complaint = cardonfile.refuses("serve", CARDONFILE_METRICS_FOLDER=str(folder))
    assert complaint == f"{folder}: No such file or directory"


def test_an_address_without_a_folder_is_refused_where_processes_are_many(
    monkeypatch: pytest.MonkeyPatch, cardonfile: CommandLine, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, value in {
        **cardonfile.environment,
        "CARDONFILE_PUBLIC_BASE_URL": "http://127.0.0.1:1",
        "CARDONFILE_METRICS": "127.0.0.1:9464",
    }.items():
        monkeypatch.setenv(name, value)

    with pytest.raises(SystemExit):
        wsgi.create_application()
    assert "CARDONFILE_METRICS needs CARDONFILE_METRICS_FOLDER" in capsys.readouterr().err


# Shows S29.
def test_a_client_that_sends_no_whole_request_is_cut_off(tmp_path: Path) -> None:
    with (
        measured(tmp_path, WAITRESS) as (_, metrics),
        closing(socket.create_connection(("127.0.0.1", metrics.port), 30)) as slow,
    ):
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert metrics.scrape()
        assert slow.recv(1) == b""


# Shows S29.
def test_nothing_is_counted_or_loaded_unless_it_is_asked_for() -> None:
    program = (
        "import sys; from entrypoints import serve, wsgi; from entrypoints.container import build; "
        "from entrypoints.settings import Settings; build(Settings.read({})).behind_proxy(); "
        "sys.exit(any(name.startswith('prometheus') for name in sys.modules))"
    )
    environment = {name: each for name, each in os.environ.items() if "CARDONFILE" not in name}

    subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, check=True)
