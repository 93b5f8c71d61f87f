"""A server on loopback that handles each request as a test decides."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from typing_extensions import override

LONG_SECONDS: Final = 60
"""How long a server drips or is silent: far longer than the deadlines that are tested."""


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    headers: Mapping[str, str]
    body: bytes


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ListeningServer  # type: ignore[mutable-override]  # the one that makes them

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.requests.append(Request(self.command, self.path, headers, body))
        acts = self.server.acts
        (acts.pop(0) if len(acts) > 1 else acts[0])(self)

    def do_POST(self) -> None:
        self.do_GET()

    def respond(
        self, status: int, body: bytes = b"", headers: Mapping[str, str] | None = None
    ) -> None:
        self.send_response(status)
        for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def hang_up(self) -> None:
        """Close the connection after this request."""
        self.close_connection = True

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


Act = Callable[[Handler], None]


class ListeningServer(ThreadingHTTPServer):
    """Runs the next of the `acts` for each request. The last act is repeated."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests: list[Request] = []
        self.connections = 0
        self.acts: list[Act] = [lambda handler: handler.respond(200)]
        self.released = threading.Event()

    @override
    def process_request(self, *args: object) -> None:
        self.connections += 1
        super().process_request(*args)  # type: ignore[arg-type]  # passed on as they came

    @override
    def handle_error(self, *_: object) -> None:
        """Ignore callers that hang up."""


@contextmanager
def running(server: ListeningServer) -> Iterator[ListeningServer]:
    """Serve until the end of the block."""
    thread = threading.Thread(target=server.serve_forever, args=(0.005,))
    thread.start()
    try:
        yield server
    finally:
        server.released.set()
        server.shutdown()
        server.server_close()
        thread.join()


def responding(status: int, body: bytes = b"", **headers: str) -> Act:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return lambda handler: handler.respond(status, body, named)


def drip_head(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nX-Padding: ")
    _drip(handler)


def drip_body(handler: Handler) -> None:
    handler.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
    _drip(handler)


def drip_interim_responses(handler: Handler) -> None:
    _drip(handler, b"HTTP/1.1 100 Continue\r\n\r\n")


def _drip(handler: Handler, drop: bytes = b"x") -> None:
    ends_at = time.monotonic() + LONG_SECONDS
    while time.monotonic() < ends_at and not handler.server.released.wait(0.01):
        handler.wfile.write(drop)
    # A client without a deadline for the whole response notices this end, and does not time out.
    handler.hang_up()


def fall_silent(handler: Handler) -> None:
    handler.server.released.wait(LONG_SECONDS)


def break_off(handler: Handler) -> None:
    handler.hang_up()


def respond_and_hang_up(handler: Handler) -> None:
    handler.respond(200)
    handler.hang_up()
