"""A client's endpoint for events. It listens on a real socket, and stores what it receives."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from typing_extensions import override


@dataclass(frozen=True)
class Received:
    """A request: its headers, with names in lower case, and its body."""

    headers: Mapping[str, str]
    body: bytes

    @property
    def event_id(self) -> str:
        return self.headers["webhook-id"]

    @property
    def content(self) -> Any:  # Any: JSON
        return json.loads(self.body)


class EventReceiver:
    """Responds to each event with `status`. Use it in a `with` statement.

    `before` is called with each request, before the response.
    """

    def __init__(self) -> None:
        self.status = 204
        self.received: list[Received] = []
        self.before: Callable[[Received], object] = lambda _: None
        receiver = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                length = int(self.headers["content-length"])
                request = Received(
                    {name.lower(): value for name, value in self.headers.items()},
                    self.rfile.read(length),
                )
                if len(request.body) < length:
                    return  # the sender has died
                receiver.received.append(request)
                receiver.before(request)
                status = receiver.respond(request)
                if status is None:
                    return
                # The sender may have died meanwhile.
                with suppress(ConnectionError):
                    self.send_response(status)
                    self.send_header("content-length", "0")
                    self.end_headers()

            @override
            def log_message(self, format: str, *args: Any) -> None:
                """Log nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )

    def respond(self, _request: Received) -> int | None:
        """Return the status of the response. None drops the connection."""
        return self.status

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}/events"

    @property
    def types(self) -> list[str]:
        return [each.content["type"] for each in self.received]

    @property
    def times(self) -> Counter[str]:
        """How often each event was received."""
        return Counter(each.event_id for each in self.received)
