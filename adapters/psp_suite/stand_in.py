"""A small HTTP server on loopback that plays a PSP in tests, and can cause trouble.

    def respond(request: Request) -> Response:
        return json_response({"id": "page_1"})

    with closing(StandInServer(respond, api="/v1/")) as server:
        server.have(respond_with(Response(503)), on="^POST /v1/pages$")
        ...

The author of an adapter writes `respond`. This module handles connections, threads and trouble.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Final, NoReturn, TypeAlias

from typing_extensions import override

GIVE_UP_SECONDS: Final = 60
"""The maximum time for which a connection stays open if the server does not respond to a call."""

_SHORTEST_PAUSE_SECONDS: Final = 0.01
_REDIRECTED: Final = re.compile("/redirected/([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request, with header names in lower case."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def call(self) -> str:
        """The method and the path, such as `POST /v1/pages`."""
        return f"{self.method} {self.path}"


@dataclass(frozen=True, slots=True)
class Response:
    """A response, to which Content-Length is added.

    The content type is JSON unless `headers` are given. If `seconds` is set, the response is sent
    byte by byte over that time.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    seconds: float = 0

    def raw(self) -> bytes:
        """Return the bytes of the response."""
        fields = {**self.headers, "Content-Length": str(len(self.body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join((*lines, "", "")).encode("latin-1") + self.body


def json_response(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Return a response with a JSON body."""
    return Response(
        status,
        json.dumps(body, indent=2).encode(),
        {"Content-Type": "application/json", **(headers or {})},
    )


def html_response(body: str, status: int = 200) -> Response:
    """Return a response with an HTML page."""
    return Response(status, body.encode(), {"Content-Type": "text/html; charset=utf-8"})


Act: TypeAlias = Callable[[], Response]
"""A function that handles a call, and returns the correct response."""

Trouble: TypeAlias = Callable[[Request, Act], Response]
"""A function that handles a call in place of the correct Act. It receives the Act, and may call it.
"""


class _Dropped(Exception):
    """The connection breaks without a response."""


class _Silent(Exception):
    """The connection stays open without a response."""


class _Redirected(Exception):
    """The call is redirected."""


def drop_call(_: Request, __: Act) -> NoReturn:
    """Break the connection without handling the call."""
    raise _Dropped


def drop_response(_: Request, act: Act) -> NoReturn:
    """Handle the call, and break the connection before the response is sent."""
    act()
    raise _Dropped


def lose_call(_: Request, __: Act) -> NoReturn:
    """Do not respond.

    The connection stays open until the server recovers or the caller closes it.
    """
    raise _Silent


def redirect(_: Request, __: Act) -> NoReturn:
    """Respond 302 to an address where the call is handled correctly."""
    raise _Redirected


def respond_with(response: Response) -> Trouble:
    """Return a kind of trouble: `response` is sent, and the call is not handled."""
    return lambda _, __: response


def change(to: Callable[[Response], Response]) -> Trouble:
    """Return a kind of trouble: the call is handled, and its response is changed by `to`."""
    return lambda _, act: to(act())


def drip(seconds: float) -> Trouble:
    """Return a kind of trouble: the call is handled, and its response is sent byte by byte.

    Sending takes the given number of seconds.
    """
    return lambda _, act: replace(act(), seconds=seconds)


@dataclass
class _TroubleWith:
    trouble: Trouble
    calls: re.Pattern[str]
    from_call: int
    times: int | None
    seen: int = 0

    def meets(self, call: str) -> bool:
        if not self.calls.search(call):
            return False
        self.seen += 1
        return self.seen >= self.from_call and (
            self.times is None or self.seen < self.from_call + self.times
        )


class StandInServer:
    """Listens on loopback at `url`, and handles each request in a separate thread.

    If `port` is 0, a free port is used. Pass another port to look at the pages in a browser.
    Requests below the path `api` come from the adapter. They are recorded in `calls`, and each
    response is delayed by `delay_seconds`. Trouble affects only these requests. All other requests
    come from the guest's browser.
    """

    def __init__(
        self, respond: Callable[[Request], Response], *, api: str = "/", port: int = 0
    ) -> None:
        self.calls: list[str] = []
        self.delay_seconds: float = 0
        self._respond = respond
        self._api = api
        self._trouble: list[_TroubleWith] = []
        self._late: list[Act] = []
        self._lock = threading.Lock()
        self._recovered = threading.Event()
        self._has_given_up = False
        self._redirects = count(1)
        self._redirected: dict[str, Request] = {}
        server = self

        class Handler(_Handler):
            stand_in = server

        self._server = _Server(("127.0.0.1", port), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,))
        self._thread.start()

    def close(self) -> None:
        """Stop the server, and end all calls to which it has not responded.

        Raises AssertionError if a caller has waited longer than GIVE_UP_SECONDS.
        """
        self._recovered.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._has_given_up:
            raise AssertionError(
                f"a caller waited for a response for more than {GIVE_UP_SECONDS} seconds"
            )

    def have(
        self, trouble: Trouble, on: str = "", *, from_call: int = 1, times: int | None = None
    ) -> None:
        """Cause trouble for calls that match the regular expression `on`.

        A call is a text such as `POST /v1/pages`. The trouble begins at the `from_call`-th matching
        call from now on. It ends after `times` calls, or when the server recovers. If several kinds
        of trouble apply to a call, only the one that was passed to `have` first is caused.
        """
        self._trouble.append(_TroubleWith(trouble, re.compile(on), from_call, times))

    def handle_later(self, _: Request, act: Act) -> NoReturn:
        """Break the connection without handling the call. `handle_late_calls` handles it later.

        To simulate this fault, pass this method to `have`.
        """
        self._late.append(act)
        raise _Dropped

    def handle_late_calls(self) -> None:
        """Handle the kept calls, in the order of their arrival."""
        late, self._late = self._late, []
        for act in late:
            act()

    def recover(self) -> None:
        """End all simulated faults, and all calls to which the server has not responded."""
        self._trouble.clear()
        self._recovered.set()
        self._recovered = threading.Event()

    def handle(self, request: Request, send: Callable[[bytes], object]) -> None:
        """Handle a request, and send its response, if any, with `send`."""
        try:
            response = self._response(request)
        except _Dropped:
            return
        except _Silent:
            if not self._recovered.wait(GIVE_UP_SECONDS):
                self._has_given_up = True
            return
        self._send_slowly(response.raw(), response.seconds, send)

    def _response(self, request: Request) -> Response:
        if match := _REDIRECTED.fullmatch(request.path):
            return self._respond(self._redirected[match[1]])
        if not request.path.startswith(self._api):
            return self._respond(request)
        with self._lock:
            self.calls.append(request.call)
            met = [each.trouble for each in self._trouble if each.meets(request.call)]
        time.sleep(self.delay_seconds)
        if not met:
            return self._respond(request)
        try:
            return met[0](request, lambda: self._respond(request))
        except _Redirected:
            number = str(next(self._redirects))
            self._redirected[number] = request
            return Response(302, headers={"Location": f"{self.url}/redirected/{number}"})

    def _send_slowly(self, raw: bytes, seconds: float, send: Callable[[bytes], object]) -> None:
        """Send a response in pieces over a number of seconds.

        A piece is one byte, or more if there is not enough time to send each byte separately. If
        the server recovers meanwhile, the rest is sent at once.
        """
        recovered, begun_at = self._recovered, time.monotonic()
        pieces = min(len(raw), max(1, int(seconds / _SHORTEST_PAUSE_SECONDS)))
        sent = 0
        for piece in range(1, pieces + 1):
            recovered.wait(max(0, begun_at + seconds * piece / pieces - time.monotonic()))
            until = len(raw) * piece // pieces
            send(raw[sent:until])
            sent = until


class _Server(ThreadingHTTPServer):
    request_queue_size = 128

    @override
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore callers that hang up."""


class _Handler(BaseHTTPRequestHandler):
    stand_in: StandInServer

    def _handle(self) -> None:
        path, _, query = self.path.partition("?")
        request = Request(
            method=self.command,
            path=path,
            query=query,
            headers={name.lower(): value for name, value in self.headers.items()},
            body=self.rfile.read(int(self.headers.get("Content-Length") or 0)),
        )
        with suppress(OSError):
            self.stand_in.handle(request, self.wfile.write)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - names of http.server

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""
