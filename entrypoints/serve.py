"""`cardonfile serve`: the service on one address, until it is told to stop."""

from __future__ import annotations

import signal
import socket
from datetime import timedelta
from types import FrameType

import structlog

from adapters.fake_psp.webhooks import WebhookSender
from adapters.http.server import Server
from entrypoints.container import FAKE, STRIPE, Container, build, shared_counts
from entrypoints.databases import answering_at_once, name_of, refuse_read_only
from entrypoints.logs import give_up_unwritten
from entrypoints.processes import Processes
from entrypoints.reconciler import Chore, Reconciler
from entrypoints.settings import (
    HOW_TO_ALLOW_FAKE_PSP,
    HOW_TO_SET_UP_STRIPE,
    WILDCARD_HOSTS,
    Settings,
)

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
        self._server = Server(
            container.app(),
            listening,
            trusted_proxy=settings.trusted_proxy,
            answering_at_once=answering_at_once(settings.database),
        )
        self._reconciler = Reconciler(
            settle=container.settle_in_worker(),
            discard_token=container.discard_token(),
            breakers=container.breakers(),
            clock=container.clock(),
            work=container.work_for_reconciler(),
            chores=[Chore(every=timedelta(hours=1), do=container.forget_idempotency_keys())],
            threads=settings.worker_threads,
        )
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
        self._server.drain()

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


def serve(container: Container, host: str, port: int, *, processes: int = 1) -> None:
    """Serve on an address until SIGTERM or SIGINT; with several processes, this one serves nothing.

    Raises ServeError, also when not all of the processes have ended in good order, and
    ServiceUnavailable for a database that can be read and not written.
    """
    with listen(host, port) as listening:
        refuse_missing_psps(container)
        refuse_read_only(container.storage())
        # Refused here and once, not by each process.
        shared_counts(container.settings())
        if processes == 1:
            _serve_alone(container, listening)
        else:
            _serve_together(container, listening, processes)
    log.info("stopped")
    give_up_unwritten()


def _serve_alone(container: Container, listening: socket.socket) -> None:
    service = Service(container, listening)

    def on_signal(_: int, __: FrameType | None) -> None:
        service.stop()

    signal.signal(signal.SIGTERM, on_signal)
    signal.signal(signal.SIGINT, on_signal)
    _announce(container.settings(), listening)
    service.run()


def _serve_together(container: Container, listening: socket.socket, count: int) -> None:
    settings = container.settings()
    # What was opened to look whether all is well must not be taken into the processes.
    container.storage().close()
    if settings.fake_psp_is_allowed:
        container.fake_psp().close()
    processes = Processes(count, lambda: Service(build(settings), listening))
    _announce(settings, listening, processes=count)
    processes.run()
    # Once the processes have closed theirs, new connections are refused instead of left waiting.
    listening.close()
    failed = processes.finish()
    if failed:
        raise ServeError(f"{failed} of {count} processes did not finish their requests")


def _announce(settings: Settings, listening: socket.socket, **more: int) -> None:
    host, port = listening.getsockname()[:2]
    log.info(
        "serving",
        host=host,
        port=port,
        base_url=settings.public_base_url,
        database=name_of(settings.database),
        **more,
    )
    if settings.fake_psp_is_allowed:
        log.warning(
            "fake_psp",
            note="takes published test cards only, and a second machine cannot see its file",
            database=str(settings.fake_psp_database),
        )
