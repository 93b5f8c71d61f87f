"""`cardonfile serve`, the service on one address, and `cardonfile work`, its worker alone."""

from __future__ import annotations

import logging
import resource
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from waitress.server import create_server

from adapters.http.webhooks import MAX_WEBHOOK_BYTES
from adapters.psp.settings import SettingsError
from entrypoints.container import Container, shared_counts
from entrypoints.databases import name_of, refuse_read_only
from entrypoints.logs import give_up_unwritten
from entrypoints.settings import (
    DEFAULT_HOST,
    DEFAULT_PORT,
    WILDCARD_HOSTS,
    Settings,
)
from entrypoints.worker import Worker

THREADS: Final = 8
MAX_CONNECTIONS: Final = 1000
MAX_HEADER_BYTES: Final = 16 * 1024
RECEIVE_BYTES: Final = 1024
IDLE_SECONDS: Final = 20
"""How long a connection may stay on which nothing comes and nothing goes."""
BACKLOG: Final = 1024
SWITCH_SECONDS: Final = 0.0001
"""How long a thread keeps the interpreter while another one waits for it.

One thread reads and writes for all connections. With Python's 5 ms it had to wait that long before
each read and write, and a new client seconds while others kept the threads busy.
"""

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
            # All requests that came in one read are answered before the next, also to a client that
            # reads no response. So few fit in here that neither memory nor other clients suffer.
            "recv_bytes": RECEIVE_BYTES,
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
    """The server, with or without the background worker."""

    def __init__(
        self, container: Container, listening: socket.socket, *, with_worker: bool = True
    ) -> None:
        """Put the parts together. Raises what a PSP raises when it is made.

        The storage may be away: answering that it is belongs to the service.
        """
        self._container = container
        container.rate_limits().check_storage()
        self._server = Server(container.behind_proxy(), listening)
        self._worker: Worker | None = None
        if with_worker:
            self._worker = Worker(container, base_url=_own_url(listening))

    def run(self) -> None:
        """Serve until `stop`; then finish what is in flight."""
        if self._worker is not None:
            self._worker.start()
        self._server.run()
        if self._worker is not None:
            self._worker.stop()
        self._container.storage().close()

    def stop(self) -> None:
        """Have `run` return once nothing is in flight. Twice is fine."""
        self._server.stop()


def _own_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    if host in WILDCARD_HOSTS:
        # A service on every address is reached on this machine's own, of the same family.
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def settings_with_base_url(environment: Mapping[str, str]) -> Settings:
    """Read the settings of a program that does not know where the service listens.

    Raises SettingsError, also when CARDONFILE_PUBLIC_BASE_URL is missing.
    """
    if not environment.get("CARDONFILE_PUBLIC_BASE_URL"):
        raise SettingsError(
            "CARDONFILE_PUBLIC_BASE_URL must say where guests reach the service, such as "
            "https://cards.example"
        )
    return Settings.read_to_serve(environment, host=DEFAULT_HOST, port=DEFAULT_PORT)


def check(container: Container) -> None:
    """Refuse what can only fail later. Raises ServeError, SettingsError and ServiceUnavailable."""
    refuse_missing_psps(container)
    refuse_read_only(container.storage())
    shared_counts(container.settings())


def refuse_missing_psps(container: Container) -> None:
    """Raise ServeError when a center is configured for what is not set up here.

    That is a PSP, or a merchant account whose keys are not set.
    """
    with container.storage().read() as unit:
        configured = unit.configurations.merchant_accounts()
    # Making the adapters shows which packages are missing.
    made = container.psps()
    psps = container.settings().psps
    for name, account in sorted(configured):
        if name not in psps:
            raise ServeError(
                f"centers are configured for the PSP {name}, which is not here: install it, and "
                "name it in CARDONFILE_PSPS"
            )
        how = psps[name].how_to_set_up(account)
        if name not in made:
            raise ServeError(f"centers are configured for the PSP {name}: {how}")
        if not psps[name].has_keys_for(account):
            raise ServeError(
                f"centers are configured for the merchant account {account} of {name}, which has "
                f"no keys: {how}"
            )


def serve(container: Container, host: str, port: int, *, with_worker: bool = True) -> None:
    """Serve on an address until SIGTERM, SIGINT or SIGHUP. Raises ServeError."""
    sys.setswitchinterval(SWITCH_SECONDS)
    with listen(host, port) as listening:
        check(container)
        service = Service(container, listening, with_worker=with_worker)
        on_stop_signals(service.stop)
        bound_host, bound_port = listening.getsockname()[:2]
        announce(container.settings(), host=bound_host, port=bound_port)
        service.run()
    log.info("stopped")
    give_up_unwritten()


def work(container: Container) -> None:
    """Run the worker alone until SIGTERM, SIGINT or SIGHUP. Raises ServeError."""
    check(container)
    worker = Worker(container, base_url=container.settings().public_base_url)
    told_to_stop: SimpleQueue[None] = SimpleQueue()
    on_stop_signals(lambda: told_to_stop.put(None))
    log.info("working")
    worker.start()
    told_to_stop.get()
    worker.stop()
    log.info("stopped")
    give_up_unwritten()


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Have the signals that end a service call `stop`, and SIGUSR1 do nothing."""

    def on_signal(_: int, __: FrameType | None) -> None:
        stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def announce(settings: Settings, **where: str | int) -> None:
    """Say in the log that the service starts, and what a user of it has to know."""
    log.info(
        "serving",
        **where,
        base_url=settings.public_base_url,
        database=name_of(settings.database),
        psps=[name for name, psp in settings.psps.items() if psp.is_set_up],
    )
    for name, psp in settings.psps.items():
        if psp.is_set_up and psp.plugin.test_setting is not None:
            log.warning("psp_for_tests", psp=name, note="takes test cards only")
