"""The demo's service and its supervisor. The service is a process whose PSP fails on demand.

The supervisor writes the faults to the standard input of the process, and closes the input to stop
the process. There is no other way to control the faults.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from subprocess import PIPE, Popen
from typing import Any, Final

import click
import structlog
from typing_extensions import override

from adapters.fake_psp.cards import CardEntry
from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.plugin import NAME, PLUGIN
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import DueEvent, FakePsp, PspPage
from adapters.system import RandomIds, SystemClock
from domain.identifiers import TOKEN_PREFIX_LENGTH
from entrypoints.container import build
from entrypoints.logs import configure_logs
from entrypoints.psps import InstalledPsp
from entrypoints.serve import ServeError, Service, announce
from entrypoints.settings import LogFormat, Settings

HANG: Final = timedelta(seconds=6)
WAIT_SECONDS: Final = 3  # How long the failing PSP delays a call or a page.


class Fault(StrEnum):
    """A fault that happens after the PSP has collected a card.

    Each value is also the name of a log event.
    """

    CLOSE = "psp_keeps_browser"
    LOSE = "psp_loses_webhook"
    HANG = "psp_hangs"
    KILL = "killed"


@dataclass
class Supervisor:
    """Runs the service in a separate process, and restarts it whenever a signal has killed it.

    `listening` stays open in this process, so that connections wait during a restart. `read` is
    called with each log line of the service.
    """

    listening: socket.socket
    environment: Mapping[str, str]
    read: Callable[[dict[str, Any]], None]
    _faults: dict[str, frozenset[str]] = field(default_factory=dict)
    _process: Popen[bytes] | None = None
    _is_stopping: bool = False

    def run(self) -> None:
        """Run the service until `stop` is called. Raises ServeError if it ends by itself."""
        while not self._is_stopping:
            number = self.listening.fileno()
            with Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", __name__, str(number)],
                env=self.environment,
                pass_fds=[number],
                stdin=PIPE,
                stderr=PIPE,
                # Ctrl-C reaches only the demo, which stops the service last.
                process_group=0,
            ) as self._process:
                for session, faults in (*self._faults.items(),):
                    self.switch(session, faults)
                for text in self._process.stderr or ():
                    self._read(text)
            if self._process.returncode >= 0 and not self._is_stopping:
                raise ServeError("the service has ended; its log lines above say why")

    def stop(self) -> None:
        """Ask the service to stop gracefully. Returns at once, and may be called twice."""
        self._is_stopping = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def switch(self, session: str, names: Collection[str]) -> None:
        """Cause the faults `names` for the card of a session. Names that are not faults are ignored."""
        self._faults[session] = frozenset(names) & frozenset(Fault)
        # A killed process reads nothing. The next process gets the faults at its start.
        with suppress(OSError, ValueError):
            if self._process is not None and self._process.stdin is not None:
                told = " ".join((session, *self._faults[session]))
                os.write(self._process.stdin.fileno(), f"{told}\n".encode())
        if self._is_stopping:
            self.stop()

    def _read(self, text: bytes) -> None:
        try:
            line = json.loads(text)
        except ValueError:
            line = {"level": "error"}
        if line["level"] == "error":
            click.echo(text, nl=False, err=True)
        if line.get("event") == Fault.KILL:
            # The process is killed only once, so that the next process stores the card.
            self._faults[line["session"]] -= {Fault.KILL}
        self.read(line)


class FaultyPsp(FakePsp):
    """A fake PSP that fails on demand.

    `faults` maps the prefix of each session's token to the faults of the session.
    """

    faults: Mapping[str, Collection[str]] = {}

    @override
    def try_card(self, reference: str, entry: CardEntry) -> PspPage:
        return self._tried(super().try_card(reference, entry))

    @override
    def answer_challenge(self, reference: str, *, confirmed: bool) -> PspPage:
        return self._tried(super().answer_challenge(reference, confirmed=confirmed))

    def _tried(self, page: PspPage) -> PspPage:
        faults = self._faults_of(page.request.token_id)
        if page.refusal is not None:
            _log("psp_declined", page.request.token_id)
        if page.collected_at is not None:
            for event in ("psp_collected", Fault.HANG, Fault.CLOSE):
                if event in {"psp_collected", *faults}:
                    _log(event, page.request.token_id)
            if Fault.CLOSE in faults:
                time.sleep(WAIT_SECONDS)
                self.page(page.reference)
                # If the shop cannot close the window, this error keeps the guest's browser from
                # returning.
                raise PspUnavailable
        return page

    @override
    def page(self, reference: str) -> PspPage:
        """Return a page, after causing the faults of its session.

        The service calls this method to find out whether there is a card to store.
        """
        page = super().page(reference)
        faults = self._faults_of(page.request.token_id)
        if page.collected_at is not None:
            if Fault.KILL in faults:
                _log(Fault.KILL, page.request.token_id, pid=os.getpid())
                os.kill(os.getpid(), signal.SIGKILL)
            if Fault.HANG in faults and self.clock.now() < page.collected_at + HANG:
                time.sleep(WAIT_SECONDS)
                raise PspUnavailable
        return page

    @override
    def take_due_event(self, now: datetime, *, until: datetime) -> DueEvent | None:
        event = super().take_due_event(now, until=until)
        if event is None:
            return None
        told = json.loads(event.body)["events"][0]
        faults = self._faults_of(told.get("token_id", ""))
        if Fault.KILL in faults and told["type"] == "page.completed":
            # This process will be killed, so it leaves its webhooks to the next process.
            self.postpone_event(event, now)
        elif Fault.HANG in faults and event.age < HANG:
            self.postpone_event(event, now + HANG - event.age)
        elif Fault.LOSE in faults:
            _log(Fault.LOSE, told["token_id"])
            self.remove_event(event)
        else:
            _log("psp_webhook", told.get("token_id", ""))
            return event
        return None

    def _faults_of(self, token_id: str) -> Collection[str]:
        return self.faults.get(token_id[:TOKEN_PREFIX_LENGTH], ())


def _log(event: str, token_id: str, **fields: int) -> None:
    structlog.get_logger().info(event, session=token_id[:TOKEN_PREFIX_LENGTH], **fields)


def main() -> None:
    """Serve on the socket whose descriptor is the first argument, until standard input closes."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    host, port = listening.getsockname()
    configure_logs(LogFormat.JSON)
    settings = Settings.read(os.environ, host=host, port=port)
    own = settings.psps[NAME].settings
    psp = FaultyPsp(own.database, base_url=own.base_url, clock=SystemClock(), ids=RandomIds())
    fake = FakeProvider(psp, webhook_secret=psp.webhook_secret, clock=psp.clock)
    installed = InstalledPsp(replace(PLUGIN, make=lambda *_: fake), own)
    settings = replace(settings, psps={**settings.psps, NAME: installed})
    container = build(settings)
    # Visitors do not wait ten minutes for the removal of cards whose bookings are over.
    container.clock.add_kwargs(steady_after=timedelta(0))
    service = Service(container, listening)

    def obey() -> None:
        # The input is unbuffered, because Python cannot end while a thread reads from a buffer.
        while lines := os.read(sys.stdin.fileno(), 65536).decode().splitlines():
            for session, *faults in map(str.split, lines):
                psp.faults = {**psp.faults, session: faults}
        service.stop()

    threading.Thread(target=obey, daemon=True).start()
    announce(settings, pid=os.getpid())
    service.run()


if __name__ == "__main__":
    main()
