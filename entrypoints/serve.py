"""`cardonfile serve`, the service on one address, and `cardonfile work`, its worker alone."""

from __future__ import annotations

import logging
import resource
import select
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterable
from errno import EACCES, EADDRINUSE
from queue import SimpleQueue
from types import FrameType
from typing import Any, Final
from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

import structlog
from typing_extensions import override
from waitress.channel import HTTPChannel
from waitress.server import BaseWSGIServer, create_server

from adapters.http.webhooks import MAX_WEBHOOK_BYTES
from domain.centers.configure_payments import Missing, what_is_missing
from entrypoints.container import Container, shared_counts
from entrypoints.databases import name_of, open_to_all, refuse_read_only
from entrypoints.metrics import measure
from entrypoints.settings import WILDCARD_HOSTS, Setting, Settings
from entrypoints.settings_error import SettingsError
from entrypoints.worker.worker import Worker

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
"""A graceful stop ends once nothing has been in flight for this time."""
STOP_SECONDS: Final = 5
"""After the drain, threads that still run get this long."""

NAME_ORIGINS: Final = "name the origins of their shops with configure-payments --redirect-origin"

log = structlog.get_logger()


class ServeError(Exception):
    """The service cannot start. The text says why, and what to do."""


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Return a listening socket. Port 0 picks a free port. Raises ServeError, with the option."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        is_taken = error.errno in (EADDRINUSE, EACCES)
        advice = f"{option} takes another" if is_taken else "name an address of this machine"
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror}; {advice}"
        ) from error
    return listening


class _Channel(HTTPChannel):
    """A connection of waitress that the main thread leaves alone while another thread sends on it.

    The thread that makes a response sends it, and holds `outbuf_lock` meanwhile. To waitress the
    connection is writable then: `poll` returns at once, again and again, and the main thread holds
    the interpreter that the other one waits for. What does not fit into the socket is left to the
    main thread: the trigger wakes it at the end of the response at the latest.
    """

    @override
    def writable(self) -> bool:
        """Return whether the main thread has something to send, or a connection to close."""
        if not super().writable() or not self.outbuf_lock.acquire(blocking=False):
            return False
        try:
            return super().writable()
        finally:
            self.outbuf_lock.release()


class Server:
    """waitress on one listening socket, with a graceful stop."""

    def __init__(self, app: WSGIApplication, listening: socket.socket) -> None:
        """Take an application and a listening socket."""
        self._app = app
        self._listening = listening
        self._is_draining = False
        # Unlike Event.set, SimpleQueue.put is reentrant, so signal handlers may call it.
        self._stop_requests: SimpleQueue[None] = SimpleQueue()
        # waitress logs the path of a lost or failed request. Paths hold session tokens and guests.
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
            # waitress refuses a body of this size. Smaller ones stay in memory: it writes bodies to
            # a file from 512 KiB on.
            "max_request_body_size": MAX_WEBHOOK_BYTES + 1,
            "channel_request_lookahead": 0,
            # waitress answers all requests of one read before it reads again, even if the client
            # reads no response. A small read bounds the memory and time that this takes.
            "recv_bytes": RECEIVE_BYTES,
            # Above this mark a thread would block until the client reads, perhaps for ever. Unsent
            # data is bounded anyway: waitress reads no further request before it has sent it all.
            "outbuf_high_watermark": 1 << 62,
            # `TrustedProxy` reads these headers.
            "clear_untrusted_proxy_headers": False,
            "log_socket_errors": False,
            "ident": None,
        }
        server = create_server(self._respond, map=self._channels, **options)
        assert isinstance(server, BaseWSGIServer)  # as always on one socket
        server.channel_class = _Channel
        # Any, because the stubs have two of its attributes wrong.
        self._server: Any = server

    def run(self) -> None:
        """Serve until `stop` is called and the requests in flight are answered."""
        drain = threading.Thread(target=self._drain, name="drain", daemon=True)
        drain.start()
        self._server.run()
        drain.join()
        self._server.task_dispatcher.shutdown(timeout=STOP_SECONDS)
        if not self._server.task_dispatcher.threads:
            # Threads that still run may write to the trigger.
            self._server.trigger.close()

    def stop(self) -> None:
        """Accept no more connections, answer the requests in flight, then let `run` return.

        From now on every response closes its connection. Responses get 30 s, the rest of a request
        gets 5 s. It returns at once, may be called from a signal handler, and twice.
        """
        self._stop_requests.put(None)

    def _respond(self, environ: WSGIEnvironment, start_response: StartResponse) -> Iterable[bytes]:
        if self._is_draining:
            self._close_connections_after_responses()
        return self._app(environ, start_response)

    def _drain(self) -> None:
        self._stop_requests.get()
        self._server.trigger.pull_trigger(self._stop_accepting)
        began = last_busy = time.monotonic()
        while (now := time.monotonic()) - last_busy < QUIET_SECONDS:
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
        # The loop of waitress ends when its map is empty.
        self._channels.clear()


def _without_path(record: logging.LogRecord) -> bool:
    before, serving, _ = record.getMessage().partition(" while serving ")
    record.msg, record.args = before + serving.rstrip(), ()
    return True


def _connection_limit() -> int:
    """Leave half of the file descriptors for everything else."""
    descriptors, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MAX_CONNECTIONS if descriptors < 0 else min(MAX_CONNECTIONS, descriptors // 2)


class Service:
    """The HTTP server, with or without the background worker."""

    def __init__(
        self, container: Container, listening: socket.socket, *, with_worker: bool = True
    ) -> None:
        """Build the parts. Raises SettingsError when a PSP cannot be used.

        The storage may be unavailable: the service then responds with 503.
        """
        self._container = container
        container.rate_limits().check_storage()
        self._server = Server(container.behind_proxy(), listening)
        self._worker: Worker | None = None
        if with_worker:
            self._worker = Worker(container, base_url=_own_url(listening))

    def run(self) -> None:
        """Serve until `stop` is called and all work in flight is done."""
        if self._worker is not None:
            self._worker.start()
        self._server.run()
        if self._worker is not None:
            self._worker.stop()
        self._container.token_uses().shutdown(cancel_futures=True)
        self._container.storage().close()

    def stop(self) -> None:
        """Stop gracefully, as `Server.stop` does. It may be called twice."""
        self._server.stop()


def _own_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    if host in WILDCARD_HOSTS:
        # The loopback address of the same family.
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check(container: Container) -> None:
    """Refuse what would only fail later, and warn of what lets others in.

    Raises ServeError, SettingsError or ServiceUnavailable.
    """
    refuse_missing_psps(container)
    # Raises SettingsError when a package that a PSP needs is not installed.
    container.psp_adapters()
    refuse_read_only(container.storage())
    refuse_erased_guests(container)
    shared_counts(container.settings())
    warn_of_openings(container)


def refuse_erased_guests(container: Container) -> None:
    """Raise ServeError when guests are back who were erased, or nothing would tell of them.

    Raises OSError if the file cannot be read.
    """
    file = container.settings().erasures_file
    if file is not None and not (folder := file.absolute().parent).is_dir():
        raise ServeError(f"the folder of CARDONFILE_ERASURES_FILE is missing: {folder}")
    found = container.erase_guest().brought_back()
    if found:
        raise ServeError(
            f"the database has guests whom CARDONFILE_ERASURES_FILE names ({len(found)}): a backup was "
            "restored, or a process killed while it erased; run `cardonfile guest erase --again`"
        )


def warn_of_openings(container: Container) -> None:
    """Log files that everybody may open, and centers whose guests may be sent anywhere."""
    settings = container.settings()
    files = open_to_all(settings.database)
    if files:
        log.warning("database_open_to_all", files=files, do="chmod 600 these files")
    centers = centers_that_redirect_anywhere(container)
    if centers:
        log.warning("redirects_to_anywhere", centers=centers, do=NAME_ORIGINS)


def centers_that_redirect_anywhere(container: Container) -> int:
    """Return how many centers of a public service let their guests be sent anywhere."""
    if container.settings().is_on_loopback:
        return 0
    with container.storage().read() as unit:
        return sum(
            not configuration.redirect_origins for configuration in unit.configurations.all()
        )


def refuse_missing_psps(container: Container) -> None:
    """Raise ServeError when a center uses a PSP or a merchant account that is not set up."""
    with container.storage().read() as unit:
        configured = unit.configurations.psp_accounts()
    psps = container.settings().psps
    for psp_account in sorted(configured):
        name, account = psp_account
        match what_is_missing(psps, psp_account):
            case Missing.PSP:
                raise ServeError(
                    f"centers are configured for the PSP {name}, which is not here: install it, "
                    "and name it in CARDONFILE_PSPS"
                )
            case Missing.SETTINGS:
                raise ServeError(
                    f"centers are configured for the PSP {name}: {psps[name].how_to_set_up(account)}"
                )
            case Missing.KEYS:
                raise ServeError(
                    f"centers are configured for the merchant account {account} of {name}, which "
                    f"has no keys: {psps[name].how_to_set_up(account)}"
                )
            case None:
                pass


def serve(container: Container, host: str, port: int, *, with_worker: bool = True) -> None:
    """Serve on an address until SIGTERM, SIGINT or SIGHUP. Raises ServeError, and as `check`."""
    with listen(host, port) as listening:
        start_metrics(container, listens=with_worker or not container.settings().metrics_folder)
        check(container)
        service = Service(container, listening, with_worker=with_worker)
        on_stop_signals(service.stop)
        bound_host, bound_port = listening.getsockname()[:2]
        announce(container.settings(), host=bound_host, port=bound_port)
        service.run()
    log.info("stopped")


def work(container: Container) -> None:
    """Run the worker alone until SIGTERM, SIGINT or SIGHUP. Raises ServeError, and as `check`."""
    start_metrics(container, listens=True)
    check(container)
    worker = Worker(container, base_url=container.settings().public_base_url)
    stop_requests: SimpleQueue[None] = SimpleQueue()
    on_stop_signals(lambda: stop_requests.put(None))
    log.info("working")
    worker.start()
    stop_requests.get()
    worker.stop()
    log.info("stopped")


def start_metrics(container: Container, *, listens: bool) -> None:
    """Have the container counted, and the metrics served if this process `listens`, if they are on.

    Call it before a part of the container is built. Raises ServeError, SettingsError and OSError.
    """
    address, folder = container.settings().metrics, container.settings().metrics_folder
    if address is None and folder is None:
        return
    if folder is None and not listens:
        raise SettingsError(
            f"{Setting.METRICS} needs {Setting.METRICS_FOLDER} here: `cardonfile work` serves what "
            "the processes count"
        )
    metrics = measure(container)
    if address is not None and listens:
        host, port = address
        server = create_server(
            metrics,
            sockets=[listen(host, port, option=Setting.METRICS)],
            connection_limit=20,
            channel_timeout=5,
            cleanup_interval=1,
            threads=2,
            ident=None,
        )
        threading.Thread(target=server.run, name="metrics", daemon=True).start()
        log.info("serving_metrics", host=host, port=port)


def on_stop_signals(stop: Callable[[], None]) -> None:
    """Call `stop` on SIGTERM, SIGINT and SIGHUP, and ignore SIGUSR1."""

    def on_signal(_: int, __: FrameType | None) -> None:
        stop()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)


def announce(settings: Settings, **where: str | int) -> None:
    """Log that the service starts, and warn of each PSP that takes test cards only."""
    log.info(
        "serving",
        **where,
        base_url=settings.public_base_url,
        database=name_of(settings.database),
        psps=[name for name, psp in settings.psps.items() if psp.is_set_up],
    )
    for name, psp in settings.psps.items():
        if psp.takes_test_cards:
            log.warning("psp_for_tests", psp=name, note="takes test cards only")
