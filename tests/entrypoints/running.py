"""The service in a thread of the test, on a real socket."""

from __future__ import annotations

import http.client
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

from entrypoints.serve import Service, listen
from tests.installation import Installation


class Running:
    """A service that runs in a thread, on a port of its own."""

    def __init__(self, folder: Path, before: Callable[[Installation], None]) -> None:
        listening = listen("127.0.0.1", 0)
        self.port: int = listening.getsockname()[1]
        self.installation = Installation(folder, base_url=f"http://127.0.0.1:{self.port}")
        self.token = self.installation.token_for(self.installation.caller)
        before(self.installation)
        self.service = Service(self.installation.container, listening)
        self.thread = threading.Thread(target=self.service.run)
        self.thread.start()

    def stop(self) -> None:
        """Drain, and wait for the end."""
        self.service.stop()
        self.thread.join(20)
        assert not self.thread.is_alive()

    def connect(self) -> http.client.HTTPConnection:
        """Open a connection."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=20)

    def request(
        self, method: str, path: str, body: str | None = None
    ) -> tuple[int, http.client.HTTPMessage, str]:
        """Send a request on a connection of its own."""
        headers = {
            "Authorization": f"bearer {self.token}",
            "Content-Type": "application/json",
        }
        with closing(self.connect()) as connection:
            connection.request(method, path, body=body, headers=headers)
            response = connection.getresponse()
            return response.status, response.headers, response.read().decode()

    def send_raw(self, request: bytes) -> bytes:
        """Send bytes as they are, and give all that comes back until the server closes."""
        with closing(socket.create_connection(("127.0.0.1", self.port), timeout=20)) as raw:
            received = b""
            # A server that has refused enough does not wait for the rest.
            with suppress(ConnectionResetError, BrokenPipeError):
                raw.sendall(request)
                while part := raw.recv(65536):
                    received += part
            return received


@contextmanager
def run_service(
    folder: Path, *, before: Callable[[Installation], None] = lambda _: None
) -> Iterator[Running]:
    """Run a service in a folder, unless the block stops it, to the block's end."""
    service = Running(folder, before)
    try:
        yield service
    finally:
        if service.thread.is_alive():
            service.stop()
        service.installation.close()
