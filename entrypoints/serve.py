"""Run the service on one address (`cardonfile serve`), or only its worker (`cardonfile work`)."""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from errno import EACCES, EADDRINUSE
from queue import SimpleQueue
from types import FrameType
from typing import Final

import structlog
from waitress.server import create_server

from domain.centers.configure_payments import Missing, find_missing
from domain.errors import ServiceUnavailable
from domain.installation.recognize_origin import AnotherOrigin
from entrypoints.container import Container, shared_counts
from entrypoints.databases import name_of, open_to_all, refuse_read_only
from entrypoints.metrics import measure
from entrypoints.settings import WILDCARD_HOSTS, Setting, Settings
from entrypoints.settings_error import SettingsError
from entrypoints.waitress_server import THREADS, Server
from entrypoints.worker.worker import Worker

NAME_ORIGINS: Final = "set the origins of their shops with configure-payments --redirect-origin"

CHECK_STORAGE_EVERY_SECONDS: Final = 60

DESCRIPTORS_OF_THREAD: Final = 3
"""The number of file descriptors that a thread uses: the database, its write-ahead log, and a
connection to a PSP, an endpoint or a client.
"""
OTHER_DESCRIPTORS: Final = 40
"""The number of other file descriptors: logs, libraries, the threads of chores and PSPs, and
listening sockets.
"""

log = structlog.get_logger()


class ServeError(Exception):
    """The service cannot start. The text contains the reason and advice."""


def listen(host: str, port: int, *, option: str = "--port") -> socket.socket:
    """Return a socket that listens on an address. If `port` is 0, a free port is used.

    Raises ServeError. If the port is in use, or if this process may not use the port, the text of
    the error tells the operator to choose another port with `option`.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((host, port))
        listening.listen()
    except OSError as error:
        listening.close()
        is_taken = error.errno in (EADDRINUSE, EACCES)
        advice = (
            f"choose another port with {option}" if is_taken else "use an address of this machine"
        )
        raise ServeError(
            f"cannot listen on {host} port {port}: {error.strerror}; {advice}"
        ) from error
    return listening


class Service:
    """The HTTP server, with or without the background worker."""

    def __init__(
        self, container: Container, listening: socket.socket, *, with_worker: bool = True
    ) -> None:
        """Build the parts of the service. Raises SettingsError if a PSP cannot be used.

        The storage may be unavailable. The service then responds with 503.
        """
        self._container = container
        container.rate_limits().check_storage()
        self._server = Server(container.behind_proxy(), listening)
        self._worker: Worker | None = None
        if with_worker:
            self._worker = Worker(container, base_url=_own_url(listening))

    def run(self) -> None:
        """Serve until `stop` is called, and return when all requests and jobs in flight are done."""
        if self._worker is not None:
            self._worker.start()
        self._server.run()
        if self._worker is not None:
            self._worker.stop()
        self._container.token_uses().shutdown(cancel_futures=True)
        self._container.storage().close()

    def stop(self) -> None:
        """Stop gracefully, as `Server.stop` does. May be called twice."""
        self._server.stop()


def _own_url(listening: socket.socket) -> str:
    host, port = listening.getsockname()[:2]
    if host in WILDCARD_HOSTS:
        # This is the loopback address of the same family.
        host = "::1" if ":" in host else "127.0.0.1"
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def check(container: Container) -> None:
    """Check the installation before the start, and log warnings about insecure settings.

    If the service would fail later, raises ServeError, SettingsError or ServiceUnavailable.
    """
    refuse_missing_psps(container)
    # Raises SettingsError if a package that a PSP needs is not installed.
    container.psp_adapters()
    refuse_read_only(container.storage())
    refuse_another_origin(container)
    refuse_erased_guests(container)
    shared_counts(container.settings())
    warn_of_openings(container)


def refuse_few_descriptors(*, threads: int, has_clients: bool = False) -> None:
    """Raise ServeError if the limit of open files of this process is too low for its threads.

    Threads keep their files open. At the limit, no thread could accept a connection or read a
    record. With `has_clients`, twice as many files are needed, because half of them are for the
    connections of clients (`waitress_server`).
    """
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = DESCRIPTORS_OF_THREAD * threads + OTHER_DESCRIPTORS
    if has_clients:
        needed *= 2
    if 0 <= allowed < needed:
        raise ServeError(
            f"this process may open only {allowed} files, but needs {needed} or more: raise the limit with "
            "`ulimit -n` or systemd's LimitNOFILE, to 4096 if you can"
        )


def refuse_another_origin(container: Container, *, claims: bool = True) -> None:
    """Raise ServeError if the database belongs to another public origin.

    If the database does not belong to an origin yet and `claims` is set, the current public origin
    is stored in it.
    """
    try:
        container.recognize_origin()(claims=claims)
    except AnotherOrigin as error:
        raise ServeError(str(error)) from error


def refuse_erased_guests(container: Container) -> None:
    """Raise ServeError if the database contains erased guests, for example after a restore.

    Also raises ServeError if the folder of the erasures file is missing, because erasures could not
    be recorded. Raises OSError if the file cannot be read.
    """
    file = container.settings().erasures_file
    if file is not None:
        folder = file.absolute().parent
        try:
            folder.stat()
        except FileNotFoundError:
            raise ServeError(
                f"the folder of CARDONFILE_ERASURES_FILE is missing: create {folder}"
            ) from None
    found = container.erase_guest().guests_not_erased()
    if found:
        raise ServeError(
            "guests that CARDONFILE_ERASURES_FILE lists as erased are in the database "
            f"({len(found)}): a backup was restored, or a process was killed during an erasure; "
            "run `cardonfile guest erase --again`"
        )


def warn_of_openings(container: Container) -> None:
    """Log warnings about database files that every user may open, and about open redirects.

    A center that allows every redirect_uri lets clients redirect its guests to any site.
    """
    settings = container.settings()
    files = open_to_all(settings.database)
    if files:
        log.warning("database_open_to_all", files=files, do="chmod 600 these files")
    centers = centers_that_redirect_anywhere(container)
    if centers:
        log.warning("redirects_to_anywhere", centers=centers, do=NAME_ORIGINS)


def centers_that_redirect_anywhere(container: Container) -> int:
    """Return how many centers allow every redirect_uri.

    Return 0 if only this machine can reach the service.
    """
    if container.settings().is_on_loopback:
        return 0
    with container.storage().read() as unit:
        return sum(
            not configuration.redirect_origins for configuration in unit.configurations.all()
        )


def refuse_missing_psps(container: Container) -> None:
    """Raise ServeError if a center uses a PSP or a merchant account that is not set up.

    A closed merchant account does not need keys, because its PSP is not called.
    """
    with container.storage().read() as unit:
        configured = unit.configurations.psp_accounts() - unit.merchant_standings.closed()
    psps = container.settings().psps
    for psp_account in sorted(configured):
        name, account = psp_account
        match find_missing(psps, psp_account):
            case Missing.PSP:
                raise ServeError(
                    f"centers are configured for the PSP {name}, which is not available: install it, "
                    "and add it to CARDONFILE_PSPS"
                )
            case Missing.SETTINGS:
                raise ServeError(
                    f"centers are configured for the PSP {name}, which is not set up: {psps[name].how_to_set_up(account)}"
                )
            case Missing.KEYS:
                raise ServeError(
                    f"centers are configured for the merchant account {account} of {name}, which "
                    f"has no keys: {psps[name].how_to_set_up(account)}"
                )
            case Missing.CLOSED | None:
                pass


def serve(container: Container, host: str, port: int, *, with_worker: bool = True) -> None:
    """Serve on an address until SIGTERM, SIGINT or SIGHUP.

    If the files of the database are replaced, the process stops and exits with status 1. Raises
    ServeError and the errors of `check`.
    """
    is_replaced = end_when_replaced(container)
    workers = container.settings().worker_threads if with_worker else 0
    refuse_few_descriptors(threads=THREADS + workers, has_clients=True)
    with listen(host, port) as listening:
        start_metrics(container, listens=with_worker or not container.settings().metrics_folder)
        check(container)
        service = Service(container, listening, with_worker=with_worker)
        on_stop_signals(service.stop)
        bound_host, bound_port = listening.getsockname()[:2]
        announce(container.settings(), host=bound_host, port=bound_port)
        threading.Thread(target=_keep_checking, args=(container,), daemon=True).start()
        service.run()
    _stopped(is_replaced)


def work(container: Container) -> None:
    """Run only the worker until SIGTERM, SIGINT or SIGHUP. Raises and exits as `serve` does."""
    is_replaced = end_when_replaced(container)
    refuse_few_descriptors(threads=container.settings().worker_threads)
    start_metrics(container, listens=True)
    check(container)
    worker = Worker(container, base_url=container.settings().public_base_url)
    stop_requests: SimpleQueue[None] = SimpleQueue()
    on_stop_signals(lambda: stop_requests.put(None))
    log.info("working")
    worker.start()
    stop_requests.get()
    worker.stop()
    _stopped(is_replaced)


def end_when_replaced(container: Container) -> threading.Event:
    """Make the process stop if the files of its database are replaced.

    Commits into the old files would be lost. Return an event that is set when this happens. Call
    this function before the storage is built.
    """
    is_replaced = threading.Event()

    def stop() -> None:
        is_replaced.set()
        os.kill(os.getpid(), signal.SIGTERM)

    container.storage.add_kwargs(on_replaced=stop)
    return is_replaced


def _keep_checking(container: Container) -> None:
    """Check the storage once a minute.

    Without this check, a process that gets no requests would not notice that its database was
    replaced.
    """
    while True:
        time.sleep(CHECK_STORAGE_EVERY_SECONDS)
        with suppress(ServiceUnavailable):
            container.storage().check()


def _stopped(is_replaced: threading.Event) -> None:
    log.info("stopped")
    if is_replaced.is_set():
        sys.exit(1)


def start_metrics(container: Container, *, listens: bool) -> None:
    """If metrics are switched on, add them to the container, and serve them if `listens` is set.

    Call this function before any part of the container is built. Raises ServeError, SettingsError
    or OSError.
    """
    address, folder = container.settings().metrics, container.settings().metrics_folder
    if address is None and folder is None:
        return
    if folder is None and not listens:
        raise SettingsError(
            f"under a WSGI server, {Setting.METRICS} needs {Setting.METRICS_FOLDER}: set it for all "
            "processes, and `cardonfile work` will serve the metrics"
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
    """Log that the service starts, and log a warning for each PSP that takes only test cards.

    `where` contains the host and the port, if this process knows them.
    """
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
