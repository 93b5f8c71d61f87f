"""Run waitress on one listening socket, with a graceful stop.

This is the only module that uses undocumented parts of waitress. The tests in
`tests/entrypoints/test_waitress_server.py` show that these parts still work, and docs/decisions.md
explains why they are needed.
"""

from __future__ import annotations

import logging
import resource
import select
import socket
import threading
import time
from collections.abc import Iterable
from queue import SimpleQueue
from typing import Any, ClassVar, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from typing_extensions import override
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, create_server
from waitress.task import ErrorTask

from adapters.http.middleware import SECURITY_HEADERS
from adapters.http.webhooks import MAX_WEBHOOK_BYTES

THREADS: Final = 8
MAX_CONNECTIONS: Final = 1000
MAX_HEADER_BYTES: Final = 16 * 1024
RECEIVE_BYTES: Final = 1024
IDLE_SECONDS: Final = 20
"""A connection without traffic is closed after this time."""
BACKLOG: Final = 1024

DRAIN_SECONDS: Final = 30
"""A graceful stop waits this long for responses."""
RECEIVE_SECONDS: Final = 5
"""A graceful stop waits this long for the rest of a request."""
QUIET_SECONDS: Final = 0.2
"""A graceful stop ends when nothing has been in flight for this time."""
CHECK_EVERY_SECONDS: Final = 0.02
STOP_SECONDS: Final = 5
"""A graceful stop finally waits this long for threads that are still running."""

_TLS_HANDSHAKE: Final = b"\x16"
"""The first byte of a TLS connection (RFC 8446, section 5.1). No HTTP request begins with it."""

log = structlog.get_logger()


class _ErrorTask(ErrorTask):
    """The response of waitress itself to a request that is not HTTP or is too large."""

    @override
    def execute(self) -> None:
        """Respond with the security headers that every other response has."""
        self.response_headers = [*self.response_headers, *SECURITY_HEADERS.items()]
        super().execute()


class _Channel(HTTPChannel):
    """A connection that the main thread of waitress ignores while another thread sends on it.

    The thread that makes a response also sends it, and holds `outbuf_lock` meanwhile. Without this
    class, waitress would treat the connection as writable during that time. The main thread would
    then poll continually, and the sending thread would often wait for the interpreter lock.

    If data does not fit into the socket at once, the main thread sends the rest. waitress wakes the
    main thread to send the rest when the response ends, or earlier.
    """

    error_task_class: type[ErrorTask] = _ErrorTask
    has_logged_tls: ClassVar[bool] = False

    @override
    def received(self, data: bytes) -> bool:
        """Process the data of a client. If the client uses TLS, close the connection.

        The first such client is logged.
        """
        if self.request is None and data.startswith(_TLS_HANDSHAKE):
            if not _Channel.has_logged_tls:
                _Channel.has_logged_tls = True
                log.warning(
                    "https_on_http_port",
                    do="clients must use the https address of the proxy, and the proxy must send "
                    "http to this port",
                )
            self.handle_close()
            return False
        return super().received(data)

    @override
    def writable(self) -> bool:
        """Return whether the main thread has data to send, or a connection to close."""
        if not super().writable() or not self.outbuf_lock.acquire(blocking=False):
            return False
        try:
            return super().writable()
        finally:
            self.outbuf_lock.release()


class Server:
    """waitress on one listening socket, with a graceful stop."""

    def __init__(self, app: WSGIApplication, listening: socket.socket) -> None:
        """Prepare to serve an application on a listening socket."""
        self._app = app
        self._listening = listening
        self._is_draining = False
        # Unlike Event.set, SimpleQueue.put is reentrant, so signal handlers may call it.
        self._stop_requests: SimpleQueue[None] = SimpleQueue()
        # waitress logs the path of a lost or failed request. Paths contain session tokens and guest
        # ids.
        logging.getLogger("waitress").addFilter(_without_path)
        # waitress logs a line for each request that waits for a thread.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self._channels: dict[int, Any] = {}
        options: dict[str, Any] = {  # the stubs give all options one type
            "sockets": [listening],
            "backlog": BACKLOG,
            "threads": THREADS,
            "connection_limit": _connection_limit(),
            "asyncore_use_poll": True,
            "channel_timeout": IDLE_SECONDS,
            "cleanup_interval": 2,
            "max_request_header_size": MAX_HEADER_BYTES,
            # waitress refuses a body of this size. Smaller bodies stay in memory, because waitress
            # writes a body to a file only from 512 KiB on.
            "max_request_body_size": MAX_WEBHOOK_BYTES + 1,
            "channel_request_lookahead": 0,
            # waitress answers all requests of one read before it reads again, even if the client
            # reads no response. A small read limits the memory and time that this takes.
            "recv_bytes": RECEIVE_BYTES,
            # Above this mark, a thread would block until the client reads, perhaps for ever. Unsent
            # data is limited anyway: waitress reads no further request before it has sent all data.
            "outbuf_high_watermark": 1 << 62,
            # `TrustedProxy` reads these headers.
            "clear_untrusted_proxy_headers": False,
            "log_socket_errors": False,
            "ident": None,
        }
        server = create_server(self._respond, map=self._channels, **options)
        assert isinstance(server, BaseWSGIServer)  # which is made for a single socket
        server.channel_class = _Channel
        # Any, because the stubs are wrong about two of its attributes.
        self._server: Any = server

    def run(self) -> None:
        """Serve until `stop` is called, and return when the requests in flight are answered."""
        drain = threading.Thread(target=self._drain, name="drain", daemon=True)
        drain.start()
        self._server.run()
        drain.join()
        self._server.task_dispatcher.shutdown(timeout=STOP_SECONDS)
        if not self._server.task_dispatcher.threads:
            # Running threads may write to the trigger.
            self._server.trigger.close()

    def stop(self) -> None:
        """Stop gracefully: stop accepting connections, answer the requests in flight, and end `run`.

        From now on, every response closes its connection. A response may take 30 seconds, and the
        rest of a request may take 5 seconds to arrive. This method returns at once. It may be
        called twice, also from a signal handler.
        """
        self._stop_requests.put(None)

    def _respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if self._is_draining:
            self._close_connections_after_responses()
        return self._app(environ, start_response)

    def _drain(self) -> None:
        self._stop_requests.get()
        self._server.trigger.pull_trigger(self._stop_accepting)
        began, quiet_seconds = time.monotonic(), 0.0
        # The time is added up in each round, so that time in which this process could not run does
        # not count as quiet.
        while quiet_seconds < QUIET_SECONDS:
            time.sleep(CHECK_EVERY_SECONDS)
            waited = time.monotonic() - began
            is_busy = waited < DRAIN_SECONDS and self._is_busy(waited)
            quiet_seconds = 0 if is_busy else quiet_seconds + CHECK_EVERY_SECONDS
        self._server.trigger.pull_trigger(self._leave_loop)

    def _is_busy(self, waited_seconds: float) -> bool:
        return not self._is_draining or any(
            channel.requests
            or channel.total_outbufs_len
            or (channel.request is not None and waited_seconds < RECEIVE_SECONDS)
            for channel in list(self._server.active_channels.values())
        )

    def _stop_accepting(self) -> None:
        self._is_draining = True
        self._close_connections_after_responses()
        # Connections in the backlog are served.
        waiting = select.poll()
        waiting.register(self._listening, select.POLLIN)
        for _ in range(BACKLOG):
            if not waiting.poll(0):
                break
            self._server.handle_accept()
        self._server.del_channel()
        self._listening.close()

    def _close_connections_after_responses(self) -> None:
        for channel in list(self._server.active_channels.values()):
            for request in list(channel.requests):
                request.headers["CONNECTION"] = "close"

    def _leave_loop(self) -> None:
        for channel in list(self._server.active_channels.values()):
            channel.handle_close()
        # waitress's loop ends when its map is empty.
        self._channels.clear()


def _without_path(record: logging.LogRecord) -> bool:
    before, serving, _ = record.getMessage().partition(" while serving ")
    record.msg, record.args = before + serving.rstrip(), ()
    return True


def _connection_limit() -> int:
    """Return how many connections may be open. They use at most half of the file descriptors."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if descriptors < 0 else min(MAX_CONNECTIONS, descriptors // 2)
