"""Metrics of real processes. Nothing else is served at their address."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from adapters.psp_suite.samples import GUEST_ID
from domain.sessions.end import SessionStatus
from entrypoints import metrics, wsgi
from tests.adapters.http.api import ACCOUNTS
from tests.builders import CENTER_ID
from tests.entrypoints.conftest import CommandLine
from tests.installation import DECLINED_CARD
from tests.programs import SERVE, TO_FULL_DISK, Server, free_port, got
from tests.scraping import Samples, samples_of
from tests.serving import GRANIAN, SERVERS, WAITRESS, Serving
from tests.waiting import wait_until

ADDED: Final = ("POST", "/api/v1/guests/{guest_id}/accounts", "200")
REQUESTS: Final = "http_request_duration_seconds_count"


class Metrics(Server):
    """The address that Prometheus would scrape."""

    def __init__(self) -> None:
        self.port = free_port()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def text(self) -> str:
        """Return the response that Prometheus would get."""
        with closing(self.connect()) as connection:
            connection.request("GET", "/metrics")
            response = connection.getresponse()
            assert response.status == 200
            return response.read().decode()

    def scrape(self) -> Samples:
        return samples_of(self.text())


@pytest.fixture(scope="module", params=SERVERS)
def measured(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Serving, Metrics]]:
    """Run a server with metrics: `serve`, which cannot write its log, or two granian processes."""
    served, folder = Metrics(), tmp_path_factory.mktemp("metrics")
    # Any: keywords of other types.
    options: dict[str, Any] = {"program": TO_FULL_DISK + SERVE}
    if request.param == GRANIAN:
        options = {"workers": 2, "CARDONFILE_METRICS_FOLDER": str(folder / "metrics")}
    (folder / "serving").mkdir()
    options["CARDONFILE_METRICS"] = served.address
    with Serving(folder / "serving", request.param, **options) as serving:
        yield serving, served
        assert serving.stop() == [0] * len(serving.programs)


only_on = partial(pytest.mark.parametrize, "measured", indirect=True)


# Shows F8, S29.
def test_metrics_of_all_processes_are_served_without_personal_data(
    measured: tuple[Serving, Metrics],
) -> None:
    serving, served = measured
    with closing(serving.connect()) as connection:
        token_id = serving.add_card(connection)
        session = serving.installation.session(token_id)
        link = f"/hosted-payments?key={session.link_key}&redirect_uri={session.redirect_uri}"
        assert got(connection, link).status == 303
        connection.request("GET", ACCOUNTS, headers={"Authorization": f"bearer {'x' * 43}"})
        assert connection.getresponse().status == 401
    session = serving.installation.session(token_id)
    serving.installation.type_card(session, DECLINED_CARD)
    serving.installation.type_card(session)
    assert serving.wait_until_settled(token_id) is SessionStatus.COMPLETED
    wait_until(lambda: served.scrape()["sessions_ended_total"])

    samples = served.scrape()
    assert samples[REQUESTS][ADDED] == 1
    assert samples["sessions_ended_total"] == {("card_stored", ""): 1}
    assert sum(samples["cards_declined_total"].values()) == 1
    assert samples["authentication_failures_total"] == {("unknown",): 1}
    assert samples["card_storing_seconds_count"] == {("fake",): 1}
    assert samples["database_up"] == {(): 1}
    assert samples["workers"] == {(): 1}
    text = served.text()
    for secret in (GUEST_ID, CENTER_ID, token_id, serving.token[:12], "Ada", "web-shop"):
        assert secret not in text
    with closing(served.connect()) as connection:
        connection.request("GET", ACCOUNTS, headers=serving.headers)
        assert connection.getresponse().read().startswith(b"# HELP ")
        connection.request("POST", ACCOUNTS, headers=serving.headers)
        assert connection.getresponse().status == 405


@only_on([GRANIAN])
def test_the_metrics_still_include_the_counts_of_a_process_that_ended(
    measured: tuple[Serving, Metrics],
) -> None:
    serving, served = measured

    def have_served() -> set[int]:
        serving.status("/")
        return {line["process"] for line in serving.lines("request")}

    before = have_served()
    os.kill(min(before), signal.SIGKILL)
    wait_until(lambda: have_served() - before)

    counted = served.scrape()[REQUESTS]["GET", "none", "404"]
    assert counted == sum(line["status"] == 404 for line in serving.lines("request"))


@only_on([WAITRESS])
def test_the_metrics_count_log_lines_that_could_not_be_written(
    measured: tuple[Serving, Metrics],
) -> None:
    serving, served = measured
    before = served.scrape()["log_lines_lost_total"][()]
    assert serving.status("/") == 404

    assert served.scrape()["log_lines_lost_total"] == {(): before + 1}


# Shows S29.
@only_on([WAITRESS])
def test_a_metrics_client_that_sends_an_incomplete_request_is_disconnected(
    measured: tuple[Serving, Metrics],
) -> None:
    _, served = measured
    with closing(socket.create_connection(("127.0.0.1", served.port), 60)) as slow:
        slow.sendall(b"GET /metrics HTTP/1.1\r\n")
        assert served.scrape()
        assert slow.recv(1) == b""


@pytest.mark.parametrize("another", ["runs", "has ended"])
def test_metric_files_of_ended_processes_are_kept_while_another_process_runs(
    tmp_path: Path, another: str
) -> None:
    ended = tmp_path / "counter_99999999.db"
    kept = [tmp_path / name for name in ("cardonfile.db", "counter.db", "counter_x_1.db")]
    own = [tmp_path / f"counter_{os.getpid()}.db"]
    if another == "runs":
        kept.append(tmp_path / f"histogram_{os.getppid()}.db")
    for file in (ended, *own, *kept):
        file.touch()

    metrics._prepare(tmp_path)

    assert ended.exists() is (another == "runs")
    assert all(file.exists() for file in kept)


def test_a_metrics_folder_that_cannot_be_created_is_refused(cardonfile: CommandLine) -> None:
    folder = cardonfile.folder / "missing" / "metrics"

    complaint = cardonfile.refuses("serve", CARDONFILE_METRICS_FOLDER=str(folder))
    assert complaint == f"{folder}: No such file or directory"


def test_a_metrics_address_without_a_metrics_folder_is_refused_for_several_processes(
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
