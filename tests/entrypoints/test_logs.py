from __future__ import annotations

import json
import logging
import os
import re
import resource
import sys
from pathlib import Path
from typing import Any

import pytest
import structlog

from entrypoints.logs import configure_logs
from entrypoints.settings import LogFormat, LogLevel
from tests.installation import Installation

NASTY = "a\r\nlevel='info' event='forged'\x1b[31m\x00\u2028\x9b"


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


@pytest.mark.parametrize("by_library", [False, True])
def test_a_partially_written_log_line_is_not_joined_with_the_next_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_library: bool
) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    with (
        (tmp_path / "log").open("w") as stderr,
        monkeypatch.context() as meanwhile,
    ):
        meanwhile.setattr(sys, "stderr", stderr)
        configure_logs(LogFormat.JSON)
        log = structlog.get_logger()
        lost = logging.getLogger("lost").warning if by_library else log.info
        log.info("before", status=200)
        # A file that may not grow further fails like a full disk: a part of a line is written.
        written = (tmp_path / "log").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (written + 9, limits[1]))
        try:
            for _ in range(3):
                lost("lost")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        for event in ("after", "later"):
            log.info(event)

    before, torn, *lines = (tmp_path / "log").read_text().splitlines()
    line: Any = json.loads(before)  # JSON has no better type
    assert line.pop("timestamp").endswith("Z")
    assert line == {"level": "info", "event": "before", "status": 200}
    assert len(torn) == 9
    assert [json.loads(each)["event"] for each in lines] == ["after", "later"]
