from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, Final

import pytest
import structlog

from entrypoints.logs import configure_logs
from entrypoints.settings import LogFormat, LogLevel
from tests.entrypoints.conftest import ROOT
from tests.installation import Installation

NASTY = "a\r\nlevel='info' event='forged'\x1b[31m\x00\u2028\x9b"

# A file that may not grow further fails like a full disk: a part of the first line is written.
ON_A_DISK_THAT_FILLS_UP: Final = """
import logging, os, resource, sys
from entrypoints.logs import configure_logs
from entrypoints.settings import LogFormat, LogLevel
import structlog

configure_logs(LogFormat.JSON)
log = structlog.get_logger()
log.info("before")
for library in (False, True):
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (os.fstat(2).st_size + 9, limits[1]))
    for _ in range(3):
        logging.getLogger("lost").warning("lost") if library else log.info("lost")
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    log.info("after")
    log.info("later")
"""


# Shows S12.
@pytest.mark.parametrize("log_format", list(LogFormat))
def test_every_log_event_is_exactly_one_line(
    capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    configure_logs(log_format)
    structlog.get_logger().warning("request", route=NASTY)
    logging.getLogger("waitress").warning("from a library: %s", NASTY)

    written = capsys.readouterr().err
    assert written.count("\n") == 2
    assert len(written.splitlines()) == 2
    assert not set(written) & set("\r\x1b\x00\u2028\x9b")


def test_json_log_lines_are_valid_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs(LogFormat.JSON)
    structlog.get_logger().info("request", status=200, route="/healthz")

    line: Any = json.loads(capsys.readouterr().err)  # JSON has no better type
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "info", "event": "request", "status": 200, "route": "/healthz"}


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_a_fault_is_logged_without_the_message_of_the_exception(
    capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    configure_logs(log_format)
    try:
        raise ValueError("4242424242424242")
    except ValueError as fault:
        structlog.get_logger().error("internal_error", exc_info=fault)
        logging.getLogger("waitress").exception("Exception while serving /")

    written = capsys.readouterr().err
    assert written.count("ValueError") == 2
    assert written.count("test_a_fault") == 2
    assert "4242424242424242" not in written
    assert "Traceback" not in written


def test_an_exception_in_an_adapter_is_logged_with_the_name_of_the_module(
    capsys: pytest.CaptureFixture[str], installation: Installation, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = installation.opened_session()
    configure_logs(LogFormat.JSON)
    monkeypatch.setattr(installation.psp, "page", None)

    try:
        installation.return_to_shop(session)
    except TypeError as fault:
        structlog.get_logger().error("internal_error", exc_info=fault)

    line: Any = json.loads(capsys.readouterr().err)  # JSON has no better type
    assert (line["fault"], line["psp"]) == ("TypeError", "fake")
    assert line["where"][-1].startswith("adapters.fake_psp.provider.outcome:")


@pytest.mark.parametrize("log_format", list(LogFormat))
def test_log_lines_contain_the_process_id_if_there_are_several_processes(
    capsys: pytest.CaptureFixture[str], log_format: LogFormat
) -> None:
    configure_logs(log_format, name_process=True)
    structlog.get_logger().info("request")
    logging.getLogger("waitress").warning("slow")

    written = capsys.readouterr().err.splitlines()
    assert len(written) == 2
    for line in written:
        assert re.search(rf"\bprocess\b\W+{os.getpid()}\b", line)


def test_the_log_line_about_a_request_contains_the_request_id(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(LogFormat.JSON)
    with structlog.contextvars.bound_contextvars(request_id="a1"):
        structlog.get_logger().info("request")
        logging.getLogger("waitress").warning("slow")

    lines = capsys.readouterr().err.splitlines()
    assert [json.loads(line)["request_id"] for line in lines] == ["a1", "a1"]


def test_log_lines_below_the_configured_level_are_not_written(
    capsys: pytest.CaptureFixture[str],
) -> None:
    configure_logs(LogFormat.TEXT, at_least=LogLevel.ERROR)
    structlog.get_logger().info("request")
    logging.getLogger("waitress").warning("slow")
    structlog.get_logger().error("internal_error")

    assert capsys.readouterr().err.count("\n") == 1


def test_a_partially_written_log_line_is_not_joined_with_the_next_line(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with log.open("ab") as stderr:
        subprocess.run(
            [sys.executable, "-c", ON_A_DISK_THAT_FILLS_UP], check=True, stderr=stderr, cwd=ROOT
        )

    first, *lines = log.read_text().splitlines()
    assert json.loads(first)["event"] == "before"
    for torn, after, later in (lines[:3], lines[3:]):
        assert len(torn) == 9
        assert [json.loads(each)["event"] for each in (after, later)] == ["after", "later"]
