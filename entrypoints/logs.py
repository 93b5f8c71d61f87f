"""Configure logging: one line for each event on standard error, without secrets."""

from __future__ import annotations

import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from adapters.psp_calls.guarded_provider import PSP_NOTE
from entrypoints.settings import LogFormat, LogLevel

FRAMES_SHOWN: Final = 8


def configure_logs(
    log_format: LogFormat, *, at_least: LogLevel = LogLevel.INFO, name_process: bool = False
) -> None:
    """Configure every logger of this process. May be called more than once.

    Lines below the level `at_least` are dropped. With `name_process`, each line contains the id of
    the process that wrote it, even after a fork.
    """
    shared: list[Processor] = [
        *([add_process] if name_process else []),
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        describe_fault,
    ]
    structlog.configure(
        processors=[*shared, _renderer(log_format)],
        logger_factory=lambda *_: _LINES,
        wrapper_class=structlog.make_filtering_bound_logger(at_least.value),
        cache_logger_on_first_use=False,
    )
    handler = logging.StreamHandler(_LINES)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                _renderer(log_format),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(at_least.name)
    # While PostgreSQL is unreachable, the pool logs many lines a second, with its address.
    logging.getLogger("psycopg.pool").setLevel(logging.CRITICAL)


def on_lost_line(call: Callable[[], None]) -> None:
    """Set the function that is called for each line that cannot be written. It must not raise."""
    _LINES.on_loss = call


def add_process(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Add the id of the current process to a log event."""
    event["process"] = os.getpid()
    return event


def describe_fault(_: WrappedLogger, __: str, event: EventDict) -> EventDict:
    """Replace an exception in a log event by its type and its stack frames.

    If the adapter of a PSP raised the exception, the name of the PSP is added. The text of the
    exception is left out, because it may contain data of a client, a guest or a PSP.
    """
    fault = event.pop("exc_info", None)
    if fault is True:
        fault = sys.exc_info()[1]
    if isinstance(fault, tuple):
        fault = fault[1]
    if isinstance(fault, BaseException):
        frames = list(traceback.walk_tb(fault.__traceback__))[-FRAMES_SHOWN:]
        event["fault"] = type(fault).__name__
        event["where"] = [
            f"{frame.f_globals.get('__name__')}.{frame.f_code.co_name}:{line}"
            for frame, line in frames
        ]
        for note in getattr(fault, "__notes__", ()):
            if note.startswith(PSP_NOTE):
                event["psp"] = note.removeprefix(PSP_NOTE)
    return event


class _Lines:
    """Writes lines to standard error.

    A line that cannot be written, for example because the disk is full, is dropped. If a part of
    that line was written, a line break is written before the next line.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._is_at_start = True
        self.on_loss: Callable[[], None] = lambda: None

    def write(self, line: str) -> None:
        """Write a line that ends with a line break."""
        # The stream is unbuffered, because a buffer would not report how much of a line was
        # written.
        buffer = sys.stderr.buffer
        stream = getattr(buffer, "raw", buffer)
        with self._lock:
            rest = ("" if self._is_at_start else "\n") + line
            unwritten = rest.encode(errors="backslashreplace")
            with suppress(OSError):
                # `write` returns None if a pipe is full and does not block.
                while unwritten and (written := stream.write(unwritten)):
                    self._is_at_start = unwritten[:written].endswith(b"\n")
                    unwritten = unwritten[written:]
            if unwritten:
                self.on_loss()

    def msg(self, line: str) -> None:
        """Write a line, and add a line break. structlog calls this method."""
        self.write(f"{line}\n")

    log = debug = info = warning = error = critical = exception = msg


_LINES: Final = _Lines()


def _renderer(log_format: LogFormat) -> Processor:
    # Both escape control characters and line breaks, so an event is one line.
    if log_format is LogFormat.JSON:
        return structlog.processors.JSONRenderer()
    return structlog.processors.KeyValueRenderer(
        key_order=["timestamp", "level", "process", "event"], drop_missing=True
    )
