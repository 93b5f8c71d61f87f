"""Metrics of one process. `test_wsgi.py` tests the metrics of several processes."""

from __future__ import annotations

import os
import sys
from contextlib import closing
from io import FileIO, TextIOWrapper
from pathlib import Path

import pytest
import structlog
from falcon import testing

from entrypoints import logs, metrics
from entrypoints.container import build
from entrypoints.settings import LogFormat
from tests.entrypoints.conftest import CommandLine
from tests.installation import Installation
from tests.scraping import samples_of


def test_the_metrics_count_log_lines_that_could_not_be_written(
    installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(logs._LINES, "on_loss", None)
    container = build(installation.settings)
    client = testing.TestClient(metrics.measure(container))
    logs.configure_logs(LogFormat.TEXT)
    with (
        closing(container.storage()),
        TextIOWrapper(FileIO("/dev/full", "w")) as full,
        monkeypatch.context() as meanwhile,
    ):
        meanwhile.setattr(sys, "stderr", full)
        for lost in (1, 2):
            structlog.get_logger().info("request")
            samples = samples_of(client.simulate_get("/metrics").text)
            assert samples["log_lines_lost_total"] == {(): lost}


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
