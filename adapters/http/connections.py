"""Connections of the server: strict about what a request is, and with an end to everything."""

from __future__ import annotations

import itertools
import logging
import re
import select
import threading
import time
from collections.abc import Callable, MutableMapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Final

import msgspec
from typing_extensions import override
from waitress import wasyncore
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import TcpWSGIServer
from waitress.task import ErrorTask, Task, WSGITask
from waitress.utilities import RequestEntityTooLarge

from adapters.http.errors import (
    InternalError,
    InvalidRequest,
    RequestBodyTooLarge,
    RequestHeaderTooLarge,
    error_body,
)
from adapters.http.readiness import Channel, Event, Readiness
from adapters.http.workers import HELD_UP_SECONDS, Workers

REQUEST_SECONDS: Final = 30
"""How long a request may take to arrive, however steadily its bytes drip in."""

IDLE_SECONDS: Final = 20
"""How long a connection may stay on which nothing comes and nothing goes."""

LET_IN_AT_ONCE: Final = 8
"""How many new connections are let in until somebody who is in already is served."""

STOP_SECONDS: Final = 5
"""How long threads may take to end once nothing is to be answered any more."""

_TRANSFER_ENCODING: Final = re.compile(
    rb"^transfer-encoding:([^\r\n]*)", re.IGNORECASE | re.MULTILINE
)
_TARGET: Final = re.compile(r"(?:https?:/)?/[^#]*", re.IGNORECASE)

_REFUSALS: Final = {
    each.code: each for each in (RequestBodyTooLarge, RequestHeaderTooLarge, InternalError)
}


class StrictParser(HTTPRequestParser):
    """Refuses what proxies and servers may read differently (RFC 9112, chapters 3, 5 and 6)."""

    @override
    def received(self, data: bytes) -> int:
        consumed = super().received(data)
        announced = getattr(self.body_rcv, "chunk_remainder", 0)
        if not self.completed and announced > self.adj.max_request_body_size:
            # waitress would wait for all of it.
            self.error = RequestEntityTooLarge("a chunk is too large")
            self.completed = True
        return consumed

    @override
    def parse_header(self, header_plus: bytes) -> None:
        if b"\r\n " in header_plus or b"\r\n\t" in header_plus:
            raise ParsingError("a header is folded")
        # waitress takes the header out, and several codings for one.
        codings = _TRANSFER_ENCODING.findall(header_plus)
        if codings and [each.strip(b" \t").lower() for each in codings] != [b"chunked"]:
            raise ParsingError("another Transfer-Encoding than chunked, once")
        try:
            super().parse_header(header_plus)
        except ValueError as error:
            raise ParsingError("a number is too long") from error
        if self.version not in ("1.0", "1.1"):
            raise ParsingError("the version is not 1.0 or 1.1")
        if "TRANSFER_ENCODING" in self.headers:
            # Only version 1.1 has it, and there waitress has taken it out.
            raise ParsingError("Transfer-Encoding in version 1.0")
        if self.chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("Content-Length together with Transfer-Encoding")
        target: str = self.request_uri  # type: ignore[attr-defined]  # the stubs lack it
        if not _TARGET.fullmatch(target):
            raise ParsingError("the target is neither a path nor a web address")
        if '"' in self.headers.get("X_FORWARDED_FOR", ""):
            # waitress would answer in plain text, and write the value into the log.
            raise ParsingError("an address in quotes")
        host = self.headers.get("HOST")
        if (host is None and self.version == "1.1") or "," in (host or ""):
            raise ParsingError("not one Host")


class _Task(WSGITask):
    @override
    def build_response_header(self) -> bytes:
        server = self.channel.server
        if isinstance(server, DrainingServer) and server.is_draining:
            request: Any = self.request  # the stubs take it for an error
            request.headers["CONNECTION"] = "close"
        return super().build_response_header()


class _ErrorTask(ErrorTask):
    @override
    def execute(self) -> None:
        # waitress would answer in plain text.
        request: Any = self.request  # the stubs take it for an error
        refusal = _REFUSALS.get(request.error.code, InvalidRequest)()
        body = msgspec.json.encode(error_body(getattr(request, "path", ""), refusal))
        self.status = f"{refusal.code} {HTTPStatus(refusal.code).phrase}"
        self.response_headers = [
            ("Content-Type", "application/json"),
            ("Cache-Control", "no-store"),
            ("X-Content-Type-Options", "nosniff"),
        ]
        self.set_close_on_finish()
        self.content_length = len(body)
        self.write(body)


class _WithoutPaths(logging.LoggerAdapter[logging.Logger]):
    """Leaves out which path was served: paths hold tokens and guests."""

    @override
    def process(
        self, msg: str, kwargs: MutableMapping[str, Any]
    ) -> tuple[str, MutableMapping[str, Any]]:
        before, serving, _ = msg.partition(" while serving ")
        return before + serving.rstrip(), kwargs


class _NothingCame(Exception):
    pass


class Connection(HTTPChannel):
    """A client's connection."""

    logger = _WithoutPaths(HTTPChannel.logger)  # type: ignore[assignment]  # it does what one does
    parser_class: type[HTTPRequestParser] = StrictParser
    task_class: type[WSGITask] = _Task
    error_task_class: type[ErrorTask] = _ErrorTask
    server: DrainingServer  # type: ignore[mutable-override]  # no other makes one
    _request_began: float = 0
    _is_closed = False

    # Other threads come upon it as soon as waitress has begun to make it.
    requests: Sequence[HTTPRequestParser] = ()

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # as waitress makes them
        self._in_hand = threading.Lock()
        with self._in_hand:
            super().__init__(*args, **kwargs)
        self.server.watch(self)

    @property
    def is_answering(self) -> bool:
        """Tell whether a request has arrived that is not answered to its last byte."""
        return bool(self.requests) or self.total_outbufs_len > 0

    @property
    def is_receiving(self) -> bool:
        """Tell whether a part of a request has arrived."""
        return self.request is not None

    def handle(self, happened: int) -> None:
        """Read what has come, answer the requests in it, and write what can be written.

        If another thread does that, this one writes at most; the other has it watched again.
        """
        if not self._in_hand.acquire(blocking=False):
            # An answer that is large waits for the client to take it, or to leave.
            wasyncore.readwrite(self, happened & ~select.POLLIN)
            return
        try:
            if self.connected:
                wasyncore.readwrite(self, happened)
            while self.requests:
                self.service()
        except BaseException:
            self.handle_close()
            raise
        finally:
            self._in_hand.release()
        self.server.watch(self)

    def close_if_idle(self, now: float) -> None:
        """Close it when nothing has come or gone for too long, unless a thread is at it."""
        if self._in_hand.acquire(blocking=False):
            try:
                is_idle = now - self.last_activity > IDLE_SECONDS
                keeps_us_waiting = self.total_outbufs_len or not self._has_unread
                if not self.requests and (self.will_close or (is_idle and keeps_us_waiting)):
                    self.handle_close()
            finally:
                self._in_hand.release()

    @override
    def handle_read(self) -> None:
        # waitress would close it. A thread may be told of what another has just read.
        with suppress(_NothingCame):
            super().handle_read()

    @override
    def recv(self, buffer_size: int) -> bytes:
        try:
            return super().recv(buffer_size)
        except BlockingIOError as error:
            raise _NothingCame from error

    @override
    def received(self, data: bytes) -> bool:
        if self.request is None:
            self._request_began = time.monotonic()
        return super().received(data)

    @override
    def readable(self) -> bool:
        # Every connection is asked this at least once a second.
        is_late = time.monotonic() - self._request_began > REQUEST_SECONDS
        if is_late and self.is_receiving and not self.requests and not self._has_unread:
            self.will_close = True
        return super().readable()

    @override
    def handle_close(self) -> None:
        # Two threads may come to it, and the number of its socket is soon another's.
        with self.outbuf_lock:
            if not self._is_closed:
                self._is_closed = True
                super().handle_close()

    def _flush_some(self, do_close: bool = True) -> bool:  # the stubs lack it
        # waitress takes no lock for a connection without requests: it has one thread that writes.
        with self.outbuf_lock:
            flush: Callable[..., bool] = super()._flush_some  # type: ignore[misc]  # as above
            return self.connected and flush(do_close)

    @property
    def _has_unread(self) -> bool:
        """Tell whether something has come that no thread has had the time to read."""
        its_socket = self.socket
        descriptor = its_socket.fileno() if its_socket else -1
        if descriptor < 0:
            return False
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        return bool(poll.poll(0))


class DrainingServer(TcpWSGIServer):
    """A server that can be told to end each connection with the answer that comes next.

    Where there is epoll, `workers_on_duty` of as many threads as waitress is told to have answer
    what they read. Elsewhere waitress's own loop reads, and hands requests to its threads.
    """

    channel_class: type[HTTPChannel] = Connection
    is_draining = False
    _readiness: Readiness | None = None

    def __init__(self, *args: Any, workers_on_duty: int, **kwargs: Any) -> None:  # as waitress
        super().__init__(*args, **kwargs)
        self._workers_on_duty = workers_on_duty
        self._channels: dict[int, Any] = self._map  # type: ignore[attr-defined]  # the stubs lack it

    @override
    def run(self) -> None:
        threads = self.adj.threads
        if not hasattr(select, "epoll"):
            self.task_dispatcher.set_thread_count(threads)
            super().run()
            self.task_dispatcher.shutdown(timeout=STOP_SECONDS)
            return
        self._readiness = Readiness(self._channels)
        workers = Workers(
            self._readiness.next_event, self._handle, count=threads, on_duty=self._workers_on_duty
        )
        workers.start()
        while self._channels:
            self._readiness.scan()
            workers.relieve_who_is_held_up()
            time.sleep(HELD_UP_SECONDS)
        workers.stop(within_seconds=STOP_SECONDS)

    def in_loop(self, act: Callable[[], object]) -> None:
        """Have something done; between two events where a loop handles them all."""
        if self._readiness is None:
            trigger: Any = self.trigger  # the stubs take it for a number
            trigger.pull_trigger(act)
        else:
            act()

    @override
    def add_task(self, task: Task) -> None:
        # `Connection.handle` has the thread that read a request answer it.
        if self._readiness is None:
            super().add_task(task)

    @override
    def maintenance(self, now: float) -> None:
        # waitress would wait until the socket takes more, and some clients never read again.
        connections: Any = self.active_channels  # the stubs take it for one of them
        for each in list(connections.values()):
            each.close_if_idle(now)

    def watch(self, channel: Channel) -> None:
        """Have it noticed what comes next on a connection that is done with what came last."""
        if self._readiness is not None:
            self._readiness.watch(channel)

    @override
    def pull_trigger(self) -> None:
        # Connections pull it to have the loop ask all of them; `watch` names the one.
        if self._readiness is None:
            super().pull_trigger()

    @override
    def handle_accept(self) -> None:
        # waitress lets in one; whoever is in already would be served before the next. If all were
        # let in, other processes would be left with nothing to do.
        for _ in itertools.count() if self.is_draining else range(LET_IN_AT_ONCE):
            if not (self.is_draining or self.readable()):
                return
            try:
                accepted = self.accept()
                if accepted is None:
                    return
                connection, address = accepted
                self.set_socket_options(connection)
            except OSError:
                return
            self.channel_class(
                self, connection, self.fix_addr(address), self.adj, map=self._channels
            )

    def _handle(self, event: Event) -> None:
        channel, happened = event
        if isinstance(channel, Connection):
            channel.handle(happened)
        else:
            wasyncore.readwrite(channel, happened)
            self.watch(channel)
