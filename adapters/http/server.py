"""Serving the application with waitress: its limits, and a drain on the way out."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any, Final
from wsgiref.types import WSGIApplication

from typing_extensions import override
from waitress.channel import HTTPChannel
from waitress.parser import HTTPRequestParser, ParsingError
from waitress.server import BaseWSGIServer, create_server

THREADS: Final = 16
DRAIN_SECONDS: Final = 30


class _StrictParser(HTTPRequestParser):
    """Refuses a body with two lengths, which proxies and servers read differently (RFC 9112)."""

    @override
    def parse_header(self, header_plus: bytes) -> None:
        super().parse_header(header_plus)
        is_chunked = self.chunked or "TRANSFER_ENCODING" in self.headers
        if is_chunked and "CONTENT_LENGTH" in self.headers:
            raise ParsingError("Content-Length together with Transfer-Encoding")


class _StrictChannel(HTTPChannel):
    parser_class: type[HTTPRequestParser] = _StrictParser


class Server:
    """A waitress server on one listening socket."""

    def __init__(
        self, app: WSGIApplication, listening: socket.socket, *, trusted_proxy: str | None = None
    ) -> None:
        """Take an application and a bound socket.

        `trusted_proxy` is the address of the one proxy whose X-Forwarded-For is believed.
        """
        listening.setblocking(False)
        adjustments: dict[str, object] = {
            "sockets": [listening],
            "threads": THREADS,
            "connection_limit": 1000,
            "asyncore_use_poll": True,
            "channel_timeout": 20,
            "cleanup_interval": 2,
            "max_request_body_size": 1024 * 1024,
            "max_request_header_size": 16 * 1024,
            "channel_request_lookahead": 0,
            "ident": None,
            "clear_untrusted_proxy_headers": True,
        }
        if trusted_proxy:
            adjustments["trusted_proxy"] = trusted_proxy
            adjustments["trusted_proxy_headers"] = {"x-forwarded-for"}
        # The stubs give every adjustment the type of all of them together.
        server = create_server(app, **adjustments)  # type: ignore[arg-type]
        if not isinstance(server, BaseWSGIServer):
            raise TypeError("waitress made no single server for one socket")
        server.channel_class = _StrictChannel
        self._server = server
        self._listening = listening
        # waitress keeps its connections to itself; the stubs know nothing of them.
        self._trigger: Any = server.trigger  # the stubs take it for a number
        self._channels = server._map  # type: ignore[attr-defined]  # noqa: SLF001
        self._drain: threading.Thread | None = None

    def run(self) -> None:
        """Serve until the drain is over."""
        self._server.run()
        self._server.task_dispatcher.shutdown()
        if self._drain is not None:
            self._drain.join()
        self._trigger.close()

    def drain(self) -> None:
        """Accept nothing more, finish what is in flight for up to 30 s, then have `run` return.

        Safe to call from a signal handler, and twice.
        """
        if self._drain is None:
            self._drain = threading.Thread(target=self._finish, name="drain", daemon=True)
            self._drain.start()

    def _finish(self) -> None:
        self._in_loop(self._stop_listening)
        give_up_at = time.monotonic() + DRAIN_SECONDS
        while self._is_busy() and time.monotonic() < give_up_at:
            time.sleep(0.02)
        self._in_loop(self._leave_loop)

    def _stop_listening(self) -> None:
        self._server.del_channel()
        self._listening.close()

    def _leave_loop(self) -> None:
        # The trigger stays open, because a thread may be about to pull it.
        for channel in list(self._channels.values()):
            if isinstance(channel, HTTPChannel):
                channel.handle_close()
        self._channels.clear()

    def _is_busy(self) -> bool:
        return any(
            channel.requests or channel.request is not None or channel.total_outbufs_len
            for channel in list(self._channels.values())
            if isinstance(channel, HTTPChannel)
        )

    def _in_loop(self, act: Callable[[], object]) -> None:
        self._trigger.pull_trigger(act)
