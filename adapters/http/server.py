"""Serving the application with waitress: its limits, and a drain on the way out."""

from __future__ import annotations

import logging
import resource
import socket
import threading
import time
from typing import Any, Final
from wsgiref.types import WSGIApplication

from waitress.adjustments import Adjustments
from waitress.task import ThreadedTaskDispatcher

from adapters.http.connections import Connection, DrainingServer

THREADS: Final = 16
MAX_CONNECTIONS: Final = 1000
MAX_BODY_BYTES: Final = 1024 * 1024
MAX_HEADER_BYTES: Final = 16 * 1024

DRAIN_SECONDS: Final = 30
"""How long answers may take once the server is told to stop."""
RECEIVE_SECONDS: Final = 5
"""How long half a request is waited for then."""
LAST_LOOK_SECONDS: Final = 0.2
"""How long requests that are on their way, or in the queue of the socket, may take to show up."""


class Server:
    """A waitress server on one listening socket; more than `connection_limit` have to wait."""

    def __init__(
        self,
        app: WSGIApplication,
        listening: socket.socket,
        *,
        trusted_proxy: str | None = None,
        answering_at_once: int = 1,
    ) -> None:
        """Take an application and a socket that listens.

        `trusted_proxy` is the address of the one proxy whose X-Forwarded-For is believed.
        `answering_at_once` is how many threads answer as long as they get on: more than one if the
        application spends much of its time waiting.
        """
        listening.setblocking(False)
        self.connection_limit = _connection_limit()
        adjustments: dict[str, object] = {
            "threads": THREADS,
            "connection_limit": self.connection_limit,
            "asyncore_use_poll": True,
            "cleanup_interval": 2,
            "max_request_body_size": MAX_BODY_BYTES,
            # Nothing that a client sends is ever put into a file.
            "inbuf_overflow": MAX_BODY_BYTES + 1,
            "max_request_header_size": MAX_HEADER_BYTES,
            "channel_request_lookahead": 0,
            # At the mark a thread would wait until others have written, and all may wait. What is
            # unsent has a bound all the same: nothing is read until it is sent.
            "outbuf_high_watermark": 1 << 62,
            "ident": None,
            "clear_untrusted_proxy_headers": True,
            # Its lines about connections that were lost name the path of the request.
            "log_socket_errors": False,
        }
        if trusted_proxy:
            adjustments["trusted_proxy"] = trusted_proxy
            adjustments["trusted_proxy_headers"] = {"x-forwarded-for"}
        checked = Adjustments(**adjustments)
        # It would write a line for each request that waits for a thread.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        # Connections by file descriptor; the listening socket and the trigger are among them.
        self._open: dict[int, Any] = {}  # waitress and its stubs disagree about their types
        self._server = DrainingServer(
            app,
            self._open,
            workers_on_duty=answering_at_once,
            _sock=listening,
            dispatcher=ThreadedTaskDispatcher(),
            adj=checked,
            bind_socket=False,
            sockinfo=(listening.family, listening.type, listening.proto, listening.getsockname()),
        )
        self._listening = listening
        self._told_to_drain = threading.Lock()
        self._drain: threading.Thread | None = None

    def run(self) -> None:
        """Serve until the drain is over."""
        self._server.run()
        if self._drain is not None:
            self._drain.join()
        trigger: Any = self._server.trigger  # the stubs take it for a number
        trigger.close()

    def drain(self) -> None:
        """Accept nothing more, answer what has arrived, then have `run` return.

        Every answer from now on ends its connection. It takes at most 30 s; half a request is
        waited for 5 s. Safe to call from a signal handler, and twice.
        """
        # One signal may interrupt what another is doing here; a lock is taken in one step.
        if self._told_to_drain.acquire(blocking=False):
            self._drain = threading.Thread(target=self._finish, name="drain", daemon=True)
            self._drain.start()

    def _finish(self) -> None:
        self._server.in_loop(self._stop_listening)
        began = last_busy = time.monotonic()
        while (now := time.monotonic()) - last_busy < LAST_LOOK_SECONDS:
            if now - began < DRAIN_SECONDS and self._is_busy(now - began):
                last_busy = now
            time.sleep(0.02)
        self._server.in_loop(self._leave_loop)

    def _is_busy(self, waited_seconds: float) -> bool:
        return any(
            each.is_answering or (each.is_receiving and waited_seconds < RECEIVE_SECONDS)
            for each in self._connections()
        )

    def _stop_listening(self) -> None:
        self._server.is_draining = True
        # Clients that are connected already are still served, once.
        self._server.handle_accept()
        self._server.del_channel()
        self._listening.close()

    def _leave_loop(self) -> None:
        for each in self._connections():
            each.handle_close()
        # The trigger stays open, because a thread may be about to pull it.
        self._open.clear()

    def _connections(self) -> list[Connection]:
        return [each for each in list(self._open.values()) if isinstance(each, Connection)]


def _connection_limit() -> int:
    """Give how many connections leave half of the file descriptors for everything else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if descriptors < 0 else min(MAX_CONNECTIONS, descriptors // 2)
