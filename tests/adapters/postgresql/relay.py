"""A TCP relay to the server that a test can cut or pause."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final
from urllib.parse import urlsplit

from tests.waiting import LIMIT_SECONDS

_CHUNK: Final = 65_536


class Relay:
    """Forwards bytes between clients and a PostgreSQL server, on a separate port.

    `before_commit` is called once, before a COMMIT is forwarded to the server. `after_commit` is
    called once, before the response to a COMMIT is forwarded to the client. If the function cuts
    the connection, the COMMIT or the response is not forwarded.
    """

    def __init__(self, url: str) -> None:
        """Accept connections for the database at `url` from now on."""
        parts = urlsplit(url)
        self._server = (parts.hostname or "", parts.port or 5432)
        self._ends: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._passes = threading.Event()
        self._passes.set()
        self._listening = socket.create_server(("127.0.0.1", 0))
        host, self._port = self._listening.getsockname()
        self.url = parts._replace(netloc=f"{parts.username}@{host}:{self._port}").geturl()
        self.before_commit: Callable[[], None] | None = None
        self.after_commit: Callable[[], None] | None = None
        self._run(self._accept, self._listening)

    def cut(self) -> None:
        """Cut every connection."""
        for end in list(self._ends):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        """Cut every connection, and refuse new ones."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def start(self) -> None:
        """Accept connections again, at the same address."""
        self._listening = socket.create_server(("127.0.0.1", self._port))
        self._run(self._accept, self._listening)

    def pause(self) -> None:
        """Accept connections and data, but do not forward anything."""
        self._passes.clear()

    def resume(self) -> None:
        """Forward everything again, including what was held back."""
        self._passes.set()

    def close(self) -> None:
        """Stop permanently."""
        self.stop()
        self.resume()
        for thread in self._threads:
            thread.join(LIMIT_SECONDS)

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self, listening: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                server = socket.create_connection(self._server)
                self._ends |= {client, server}
                self._run(self._pass_on, client, server, self._on_sent)
                self._run(self._pass_on, server, client, self._on_received)

    def _pass_on(
        self, source: socket.socket, target: socket.socket, look: Callable[[bytes], None]
    ) -> None:
        with suppress(OSError):
            while received := source.recv(_CHUNK):
                self._passes.wait()
                look(received)
                target.sendall(received)
        with suppress(OSError):
            target.shutdown(socket.SHUT_RDWR)
        self._ends.discard(source)
        source.close()

    def _on_sent(self, sent: bytes) -> None:
        if b"COMMIT\0" in sent and self.before_commit is not None:
            act, self.before_commit = self.before_commit, None
            act()

    def _on_received(self, received: bytes) -> None:
        if b"COMMIT\0" in received and self.after_commit is not None:
            act, self.after_commit = self.after_commit, None
            act()


@contextmanager
def relay_to(url: str) -> Iterator[Relay]:
    """Provide a relay to a database. Fail if `before_commit` or `after_commit` was not called."""
    relay = Relay(url)
    try:
        yield relay
    finally:
        relay.close()
    assert (relay.before_commit, relay.after_commit) == (None, None), "no COMMIT was seen"
