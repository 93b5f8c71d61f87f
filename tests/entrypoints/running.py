"""The service in a thread of the test process, on a real socket."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from entrypoints.serve import Service, listen
from tests.installation import Installation
from tests.programs import Server
from tests.waiting import LIMIT_SECONDS


class Running(Server):
    """A service that runs in a thread, on a free port."""

    def __init__(self, folder: Path, host: str, before: Callable[[Installation], None]) -> None:
        listening = listen(host, 0)
        self.port = listening.getsockname()[1]
        self.installation = Installation(folder, base_url=f"http://127.0.0.1:{self.port}")
        self.token = self.installation.token_for(self.installation.caller)
        before(self.installation)
        self.service = Service(self.installation.container, listening)
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def stop(self) -> None:
        """Stop gracefully, and wait for the end."""
        self.service.stop()
        self.thread.join(LIMIT_SECONDS)
        assert not self.thread.is_alive()

    def request(
        self, method: str, path: str, body: str | None = None
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """Send a request on a separate connection."""
        headers = {
            "Authorization": f"bearer {self.token}",
            "Content-Type": "application/json",
        }
        with closing(self.connect()) as connection:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()

    def send_raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and return everything received until the server closes."""
        address = ("127.0.0.1", self.port)
        with closing(socket.create_connection(address, timeout=LIMIT_SECONDS)) as raw:
            received = b""
            # The server may answer and close the connection before it has read everything.
            with suppress(ConnectionResetError, BrokenPipeError):
                raw.sendall(request)
            with suppress(ConnectionResetError):
                while part := raw.recv(65536):
                    received += part
            return received


@contextmanager
def run_service(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    before: Callable[[Installation], None] = lambda _: None,
) -> Iterator[Running]:
    """Run a service over an installation in a folder. The block may stop it itself.

    `before` is called with the installation before the service is built.
    """
    service = Running(folder, host, before)
    try:
        yield service
    finally:
        if service.thread.is_alive():
            service.stop()
        service.installation.close()


def connected(port: int) -> socket.socket:
    """Return a connection to a port of this machine."""
    return socket.create_connection(("127.0.0.1", port), LIMIT_SECONDS)
