"""`cardonfile serve`: the service on one address, in one process, until it is told to stop."""

from __future__ import annotations

import logging
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from waitress.server import create_server

from adapters.fake_psp.webhooks import WebhookSender
from adapters.http.webhooks import MAX_WEBHOOK_BYTES
from entrypoints.container import FAKE, STRIPE, Container, shared_counts
from entrypoints.logs import give_up_unwritten
from entrypoints.reconciler import ReconcilerThread
from entrypoints.settings import (
    HOW_TO_ALLOW_FAKE_PSP,
    HOW_TO_SET_UP_STRIPE,
    WILDCARD_HOSTS,
    Settings,
)

THREADS: Final = 8
MAX_CONNECTIONS: Final = 1000
MAX_HEADER_BYTES: Final = 16 * 1024
IDLE_SECONDS: Final = 20
"""How long a connection may stay on which nothing comes and nothing goes."""
BACKLOG: Final = 1024

DRAIN_SECONDS: Final = 30
"""How long responses may take once the server is told to stop."""
RECEIVE_SECONDS: Final = 5
"""How long the rest of a request is waited for then."""
LAST_LOOK_SECONDS: Final = 0.2
"""How long nothing must be under way before the server stops."""
STOP_SECONDS: Final = 5
"""How long threads that still run after the drain are waited for."""

log = structlog.get_logger()


class ServeError(Exception):
    """The service cannot be started; the text says why, and what to do."""


def listen(host: str, port: int) -> socket.socket:
    """Give a socket bound to an address; port 0 takes a free one. Raises ServeError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror}; --port takes another"
        ) from error
    return listening


class Server:
    """waitress on one listening socket, with a graceful stop."""

    def __init__(self, app: WSGIApplication, listening: socket.socket) -> None:
        """Take an application and a socket that listens."""
        self._app = app
        self._listening = listening
        self._is_draining = False
        # `put` may be called by a signal handler that interrupts another `put`.
        self._told_to_stop: SimpleQueue[None] = SimpleQueue()
        # Its lines about lost connections and faults name the path, which holds tokens and guests.
        logging.getLogger("waitress").addFilter(_without_path)
        # It would write a line for each request that waits for a thread.
        logging.getLogger("waitress.queue").setLevel(logging.ERROR)
        self._channels: dict[int, Any] = {}
        options: dict[str, Any] = {  # the stubs take all options for one type
            "sockets": [listening],
            "backlog": BACKLOG,
            "threads": THREADS,
            "connection_limit": _connection_limit(),
            "asyncore_use_poll": True,
            "channel_timeout": IDLE_SECONDS,
            "cleanup_interval": 2,
            "max_request_header_size": MAX_HEADER_BYTES,
            # waitress refuses a body of this size. It keeps a smaller one in memory: no body
            # comes near 512 KiB, from where on it would be put into a file.
            "max_request_body_size": MAX_WEBHOOK_BYTES + 1,
            "channel_request_lookahead": 0,
            # Above the mark a thread waits until the client has read, which it may never do. What
            # is unsent is bounded all the same: nothing is read from a client before it is sent.
            "outbuf_high_watermark": 1 << 62,
            # `TrustedProxy` reads these headers.
            "clear_untrusted_proxy_headers": False,
            "log_socket_errors": False,
            "ident": None,
        }
        # The stubs have two of its attributes wrong.
        self._server: Any = create_server(self._answer, map=self._channels, **options)

    def run(self) -> None:
        """Serve until `stop`, and until what was under way then is answered."""
        drain = threading.Thread(target=self._drain, name="drain", daemon=True)
        drain.start()
        self._server.run()
        drain.join()
        self._server.task_dispatcher.shutdown(timeout=STOP_SECONDS)
        if not self._server.task_dispatcher.threads:
            # A thread that still runs may be about to write to it.
            self._server.trigger.close()

    def stop(self) -> None:
        """Accept nothing more, answer what has arrived, then have `run` return.

        Every response from now on ends its connection. It takes at most 30 s; the rest of a request
        is waited for 5 s. Safe to call from a signal handler, and twice.
        """
        self._told_to_stop.put(None)

    def _answer(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if self._is_draining:
            self._end_connections_with_their_responses()
        return self._app(environ, start_response)

    def _drain(self) -> None:
        self._told_to_stop.get()
        self._server.trigger.pull_trigger(self._stop_accepting)
        began = last_busy = time.monotonic()
        while (now := time.monotonic()) - last_busy < LAST_LOOK_SECONDS:
            if now - began < DRAIN_SECONDS and self._is_busy(now - began):
                last_busy = now
            time.sleep(0.02)
        self._server.trigger.pull_trigger(self._leave_loop)

    def _is_busy(self, waited_seconds: float) -> bool:
        return any(
            channel.requests
            or channel.total_outbufs_len
            or (channel.request is not None and waited_seconds < RECEIVE_SECONDS)
            for channel in list(self._server.active_channels.values())
        )

    def _stop_accepting(self) -> None:
        self._is_draining = True
        self._end_connections_with_their_responses()
        # Clients that have connected are still served.
        waiting = select.poll()
        waiting.register(self._listening, select.POLLIN)
        for _ in range(BACKLOG):
            if not waiting.poll(0):
                break
            self._server.handle_accept()
        self._server.del_channel()
        self._listening.close()

    def _end_connections_with_their_responses(self) -> None:
        for channel in list(self._server.active_channels.values()):
            for request in list(channel.requests):
                request.headers["CONNECTION"] = "close"

    def _leave_loop(self) -> None:
        for channel in list(self._server.active_channels.values()):
            channel.handle_close()
        # The loop ends when it has nothing to watch.
        self._channels.clear()


def _without_path(record: logging.LogRecord) -> bool:
    before, serving, _ = record.getMessage().partition(" while serving ")
    record.msg, record.args = before + serving.rstrip(), ()
    return True


def _connection_limit() -> int:
    """Give how many connections leave half of the file descriptors for everything else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if descriptors < 0 else min(MAX_CONNECTIONS, descriptors // 2)


class Service:
    """The server with its background threads."""

    def __init__(self, container: Container, listening: socket.socket) -> None:
        """Put the parts together. Raises PspUnavailable when the fake PSP is of no use just now.

        The storage may be away: answering that it is belongs to the service.
        """
        settings = container.settings()
        self._host, self._port = listening.getsockname()[:2]
        self._container = container
        container.rate_limits().look_for_shared()
        self._server = Server(container.behind_proxy(), listening)
        self._reconciler = ReconcilerThread(container.reconcile(), container.work_for_reconciler())
        self._webhooks: WebhookSender | None = None
        if settings.fake_psp_is_allowed:
            self._webhooks = WebhookSender(container.fake_psp(), url=self._webhook_url())

    def run(self) -> None:
        """Serve until `stop`; then finish what is in flight."""
        self._reconciler.start()
        if self._webhooks is not None:
            self._webhooks.start()
        self._server.run()
        if self._webhooks is not None:
            self._webhooks.stop()
        self._reconciler.stop()
        self._container.storage().close()

    def stop(self) -> None:
        """Have `run` return once nothing is in flight. Twice is fine."""
        self._server.stop()

    def _webhook_url(self) -> str:
        # A service on every address is reached on this machine's own, of the same family.
        own = "::1" if ":" in self._host else "127.0.0.1"
        host = own if self._host in WILDCARD_HOSTS else self._host
        return f"http://{f'[{host}]' if ':' in host else host}:{self._port}/webhooks/{FAKE}"


def refuse_missing_psps(container: Container) -> None:
    """Raise ServeError when a center is configured for what is not set up here.

    That is a PSP, or a merchant account whose keys are not set.
    """
    with container.storage().read() as unit:
        configured = unit.configurations.merchant_accounts()
    missing = sorted({provider for provider, _ in configured} - container.psps().keys())
    without_keys = sorted(
        {account for provider, account in configured if provider == STRIPE}
        - container.settings().stripe_accounts.keys()
    )
    if FAKE in missing:
        raise ServeError(
            "centers are configured for the fake PSP, which is for trying things out on this "
            f"machine: {HOW_TO_ALLOW_FAKE_PSP}"
        )
    if STRIPE in missing:
        raise ServeError(f"centers are configured for Stripe: {HOW_TO_SET_UP_STRIPE}")
    if without_keys:
        raise ServeError(
            "centers are configured for merchant accounts at Stripe without keys: "
            f"{', '.join(without_keys)}; {HOW_TO_SET_UP_STRIPE}"
        )
    if missing:
        raise ServeError(f"centers are configured for PSPs not set up here: {', '.join(missing)}")


def serve(container: Container, host: str, port: int) -> None:
    """Serve on an address until SIGTERM, SIGINT or SIGHUP. Raises ServeError."""
    with listen(host, port) as listening:
        refuse_missing_psps(container)
        shared_counts(container.settings())
        service = Service(container, listening)
        on_stop_signals(service.stop)
        _announce(container.settings(), listening)
        service.run()
    log.info("stopped")
    give_up_unwritten()


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Have the signals that end a service call `stop`, and SIGUSR1 do nothing."""

    def on_signal(_: int, __: FrameType | None) -> None:
        stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def _announce(settings: Settings, listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    log.info("serving", host=host, port=port, base_url=settings.public_base_url)
    if settings.fake_psp_is_allowed:
        log.warning(
            "fake_psp",
            note="takes published test cards only, and a second machine cannot see its file",
            database=str(settings.fake_psp_database),
        )
