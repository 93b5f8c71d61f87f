"""A small HTTP server on loopback that plays a PSP in tests, and the trouble that it can make.

    def respond(request: Request) -> Response:
        return json_response({"id": "page_1"})

    with closing(StandInServer(respond, api="/v1/")) as server:
        server.have(respond_with(Response(503)), on="^POST /v1/pages$")
        ...

What the PSP knows and does is the author's; connections, threads and trouble are here.
"""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from typing import Final, NoReturn, TypeAlias

from typing_extensions import override

GIVE_UP_SECONDS: Final = 20
"""How long a call that gets no response is held, should nobody end it before."""

_SHORTEST_PAUSE_SECONDS: Final = 0.01
_REDIRECTED: Final = re.compile("/redirected/([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request as it came: header names in lower case, the path and the query apart."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]
    body: bytes

    @property
    def call(self) -> str:
        """What it asks for, such as `POST /v1/pages`."""
        return f"{self.method} {self.path}"


class Part(Enum):
    """The part of a response that drips."""

    HEAD = "head"
    BODY = "body"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Response:
    """A response; its length is not among the headers, which are JSON's unless some are given.

    `seconds` is how long `slow`, a part of it, takes to come byte by byte.
    """

    status: int = 200
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=lambda: {"Content-Type": "application/json"})
    seconds: float = 0
    slow: Part = Part.ALL

    def head(self) -> bytes:
        """Give what comes before the body."""
        fields = {**self.headers, "Content-Length": str(len(self.body)), "Connection": "close"}
        lines = [f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}"]
        lines += [f"{name}: {value}" for name, value in fields.items()]
        return "\r\n".join((*lines, "", "")).encode("latin-1")


def json_response(
    body: object, status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    """Give a response in JSON, with these headers besides."""
    return Response(
        status,
        json.dumps(body, indent=2).encode(),
        {"Content-Type": "application/json", **(headers or {})},
    )


def html_response(body: str, status: int = 200) -> Response:
    """Give a page."""
    return Response(status, body.encode(), {"Content-Type": "text/html; charset=utf-8"})


Act: TypeAlias = Callable[[], Response]
"""Does what a call asks for, and gives the sound response."""

Trouble: TypeAlias = Callable[[Request, Act], Response]
"""Makes trouble with a call: before it acts, after, with its response, or instead."""


class _Dropped(Exception):
    """The connection breaks, and no response comes."""


class _Silent(Exception):
    """The connection stays, and no byte of a response comes."""


class _Redirected(Exception):
    """Whoever follows gets what the call asks for."""


def drop_call(_: Request, __: Act) -> NoReturn:
    """Break the connection; nothing is done."""
    raise _Dropped


def drop_response(_: Request, act: Act) -> NoReturn:
    """Do what is asked for, and break the connection before the response."""
    act()
    raise _Dropped


def lose_call(_: Request, __: Act) -> NoReturn:
    """Do nothing and say nothing, until the server recovers or the caller gives up."""
    raise _Silent


def lose_response(_: Request, act: Act) -> NoReturn:
    """Do what is asked for and say nothing, until the server recovers or the caller gives up."""
    act()
    raise _Silent


def redirect(_: Request, __: Act) -> NoReturn:
    """Respond 302; the address that it names does what is asked for, and responds well."""
    raise _Redirected


def respond_with(response: Response) -> Trouble:
    """Give this response, and do nothing."""
    return lambda _, __: response


def change(to: Callable[[Response], Response]) -> Trouble:
    """Do what is asked for, and change the response."""
    return lambda _, act: to(act())


def drip(seconds: float, slow: Part = Part.ALL) -> Trouble:
    """Do what is asked for, and respond byte by byte for so many seconds."""

    def dripping(_: Request, act: Act) -> Response:
        sound = act()
        return Response(sound.status, sound.body, sound.headers, seconds, slow)

    return dripping


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
    """Listens on this machine at `url`, and responds to requests as it is told, in many threads.

    Requests below the path `api` are the adapter's: they are kept in `calls`, each takes
    `delay_seconds`, and they alone meet trouble. Others are those of the guest's browser.
    """

    def __init__(self, respond: Callable[[Request], Response], *, api: str = "/") -> None:
        self.calls: list[str] = []
        self.delay_seconds: float = 0
        self._respond = respond
        self._api = api
        self._trouble: list[_TroubleWith] = []
        self._lock = threading.Lock()
        self._recovered = threading.Event()
        self._has_given_up = False
        self._redirects = count(1)
        self._redirected: dict[str, Request] = {}
        server = self

        class Handler(_Handler):
            stand_in = server

        self._server = _Server(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.005,))
        self._thread.start()

    def close(self) -> None:
        """Stop, and let go of the calls that are held.

        Raises AssertionError when somebody has waited for a response until the server gave up.
        """
        self._recovered.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        if self._has_given_up:
            raise AssertionError(f"a response was waited for over {GIVE_UP_SECONDS} seconds")

    def have(
        self, trouble: Trouble, on: str = "", *, from_call: int = 1, times: int | None = None
    ) -> None:
        """Have trouble with calls such as `POST /v1/pages`, which `on` is a regular expression for.

        It begins with the `from_call`-th of them from now, and lasts for so many times, or until
        the server recovers. Where several kinds of trouble meet, the first counts.
        """
        self._trouble.append(_TroubleWith(trouble, re.compile(on), from_call, times))

    def recover(self) -> None:
        """Have no more trouble, and let go of the calls that are held."""
        self._trouble.clear()
        self._recovered.set()
        self._recovered = threading.Event()

    def handle(self, request: Request, send: Callable[[bytes], object]) -> None:
        """Respond to a request by `send`, or not at all."""
        try:
            response = self._response(request)
        except _Dropped:
            return
        except _Silent:
            if not self._recovered.wait(GIVE_UP_SECONDS):
                self._has_given_up = True
            return
        if response.slow is Part.BODY or not response.seconds:
            send(response.head())
            self._send_slowly(response.body, response.seconds, send)
        elif response.slow is Part.HEAD:
            self._send_slowly(response.head(), response.seconds, send)
            send(response.body)
        else:
            self._send_slowly(response.head() + response.body, response.seconds, send)

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
        """Send it in pieces that take so many seconds in all, or at once when the server recovers.

        The pieces are single bytes unless there are more than can be sent one by one.
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
        """Callers may hang up."""


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

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _handle  # noqa: N815 - http.server calls them so

    @override
    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""
