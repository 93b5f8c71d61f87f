"""Programs of tests, including the service, as separate processes."""

from __future__ import annotations

import http.client
import json
import os
import random
import signal
import socket
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.waiting import LIMIT_SECONDS, wait_until

ROOT: Final = Path(__file__).resolve().parents[1]
_PORTS: Final = range(20_000, 30_000)
"""These ports are below those that operating systems choose by themselves."""

RUNTIME: Final = (
    "import sys; "
    "sys.modules.update(dict.fromkeys(('fastapi', 'pydantic_settings', 'rich', 'werkzeug'))); "
)
"""Source that makes a program import only packages with which the service is installed.

If these other packages are installed, the service's dependencies import them too, which takes as
long as all other imports.
"""

SERVE: Final = RUNTIME + 'from entrypoints.cli.main import main; main(prog_name="cardonfile")'


class Server:
    """Whatever serves HTTP on a port of this machine."""

    port: int

    def connect(self) -> http.client.HTTPConnection:
        """Return a connection that is not open yet."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=LIMIT_SECONDS)

    def status(self, path: str) -> int:
        """Return the status of a GET on a new connection, or 0 without a response."""
        with suppress(ConnectionError), closing(self.connect()) as connection:
            return got(connection, path).status
        return 0


def got(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    """Send a GET, and return the response, which has been read."""
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response


class Program:
    """A Python program in a separate process group, with its log."""

    def __init__(self, folder: Path, program: str, *arguments: str, **environment: str) -> None:
        kept = {name: each for name, each in os.environ.items() if "CARDONFILE" not in name}
        self.log = folder / "log"
        with self.log.open("wb") as log:
            # The pipe stays empty, and closes when the last process of the group ends.
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
        # The number of a group that has ended may be that of another group by now.
        if self.process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.communicate()

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the complete log lines, or those of an event. Lines of granian begin with `[`."""
        whole, _, _ = self.log.read_text().rpartition("\n")
        ours = (line for line in whole.splitlines() if not line.startswith(("Error: ", "[")))
        lines = [json.loads(line) for line in ours]
        return [line for line in lines if event in (None, line["event"])]

    def wait_for(self, event: str) -> None:
        """Wait until a line has this event."""
        wait_until(lambda: self.lines(event))

    def tell(self, number: signal.Signals) -> None:
        """Send a signal to the parent process."""
        self.process.send_signal(number)

    def ends(self) -> int:
        """Wait until all processes have ended, and return the exit status of the parent."""
        printed, _ = self.process.communicate(timeout=LIMIT_SECONDS)
        assert printed == b""
        return self.process.returncode


def free_port() -> int:
    """Return a free port that no other test gets when it asks for any port."""
    while True:
        port = random.SystemRandom().choice(_PORTS)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
