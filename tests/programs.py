"""The service, and programs of tests, as processes of their own."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.waiting import wait_until

ROOT: Final = Path(__file__).resolve().parents[1]
DEADLINE_SECONDS: Final = 40
SERVE: Final = 'from entrypoints.cli import main; main(prog_name="cardonfile")'


class Program:
    """A program in a process group of its own, and what it has logged."""

    def __init__(self, folder: Path, program: str, *arguments: str, **environment: str) -> None:
        kept = {name: each for name, each in os.environ.items() if "CARDONFILE" not in name}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            # Its standard output is silent; it ends when the last process that holds it has ended.
            self.process = subprocess.Popen(
                [sys.executable, "-W", "error", "-c", program, *arguments],
                cwd=folder,
                env={**kept, "PYTHONPATH": str(ROOT), **environment},
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Give the lines of the log, each whole."""
        whole, _, _ = self.log.read_text().rpartition("\n")
        lines = [json.loads(line) for line in whole.splitlines() if not line.startswith("Error: ")]
        return [line for line in lines if event in (None, line["event"])]

    def wait_for(self, event: str, *, count: int = 1, **fields: object) -> None:
        """Wait until that many lines tell of such an event."""
        wait_until(
            lambda: sum(fields.items() <= line.items() for line in self.lines(event)) >= count
        )

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the parent alone."""
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait until no process is left; give the exit status of the parent."""
        printed, _ = self.process.communicate(timeout=DEADLINE_SECONDS)
        assert printed == b""
        return self.process.returncode


def free_port() -> int:
    """Give a port that nobody listens on just now."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
        return port
