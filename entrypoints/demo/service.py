"""The demo's service: a process of its own, with a PSP that fails on demand, and its supervisor.

The supervisor writes the faults to the standard input of the process, and closes that to stop it.
There is no other way to them.
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
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from enum import StrEnum
from subprocess import PIPE, Popen
from typing import Any, Final, TypeAlias

import click
import structlog
from typing_extensions import override

from adapters.fake_psp.cards import CardEntry
from adapters.fake_psp.database import PspUnavailable
from adapters.fake_psp.plugin import NAME, PLUGIN
from adapters.fake_psp.provider import FakeProvider
from adapters.fake_psp.psp import DueEvent, FakePsp, PspPage
from adapters.system import RandomIds, SystemClock
from domain.identifiers import SHOWN_OF_TOKENS, CardToken
from entrypoints.container import build
from entrypoints.logs import configure_logs
from entrypoints.psps import InstalledPsp
from entrypoints.serve import ServeError, Service, announce
from entrypoints.settings import LogFormat, Settings

HANG: Final = timedelta(seconds=6)
WAIT_SECONDS: Final = 3
"""How long a call waits for a PSP that hangs, and a browser for its end."""
COLLECTED: Final = "psp_collected"

Line: TypeAlias = dict[str, Any]  # JSON of the log; docs/operations.md describes the fields


class Fault(StrEnum):
    """What goes wrong once the PSP has a card. Each is also the event of its line in the log."""

    CLOSE = "psp_keeps_browser"
    LOSE = "psp_loses_webhook"
    HANG = "psp_hangs"
    KILL = "killed"


@dataclass
class Supervisor:
    """Runs the service in a process of its own, and again whenever a signal has killed it.

    `listening` stays open here, so connections wait meanwhile. `read` takes each line of the log.
    """

    listening: socket.socket
    environment: Mapping[str, str]
    read: Callable[[Line], None]
    _faults: frozenset[str] = frozenset()
    _process: Popen[bytes] | None = None
    _is_stopping: bool = False

    def run(self) -> None:
        """Return after `stop`. Raises ServeError if the service ends by itself."""
        while not self._is_stopping:
            number = self.listening.fileno()
            with Popen(  # noqa: S603 - our own program
                [sys.executable, "-P", "-m", __name__, str(number)],
                env=self.environment,
                pass_fds=[number],
                stdin=PIPE,
                stderr=PIPE,
                # Ctrl-C reaches the demo alone, which stops the service last.
                process_group=0,
            ) as self._process:
                self.switch(self._faults)
                for text in self._process.stderr or ():
                    self._read(text)
            if self._process.returncode < 0:
                self.read({"event": Fault.KILL, "pid": self._process.pid})
                # Once: the next process stores the card.
                self._faults -= {Fault.KILL}
            elif not self._is_stopping:
                raise ServeError("the service has ended; the lines above say why")

    def stop(self) -> None:
        """Have the service stop gracefully. It returns at once, and may be called twice."""
        self._is_stopping = True
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def switch(self, names: Collection[str]) -> None:
        """Have these faults happen to the next card, and no others. Other names are left out."""
        self._faults = frozenset(names) & frozenset(Fault)
        # One that was killed reads nothing; the next is told at its start.
        with suppress(OSError, ValueError):
            if self._process is not None and self._process.stdin is not None:
                os.write(self._process.stdin.fileno(), f"{' '.join(self._faults)}\n".encode())
        if self._is_stopping:
            self.stop()

    def _read(self, text: bytes) -> None:
        try:
            line = json.loads(text)
        except ValueError:
            line = {"level": "error"}
        if line["level"] == "error":
            click.echo(text, nl=False, err=True)
        self.read(line)


class FaultyPsp(FakePsp):
    """A fake PSP that fails on demand. `faults` has the names of the faults that are on."""

    faults: frozenset[str] = frozenset()
    _newest: PspPage | None = None

    def switch(self, faults: frozenset[str]) -> None:
        """Have these faults happen to the next card, and no others."""
        self.faults, self._newest = faults, None

    @override
    def try_card(self, reference: str, entry: CardEntry) -> PspPage:
        return self._tried(super().try_card(reference, entry))

    @override
    def answer_challenge(self, reference: str, *, confirmed: bool) -> PspPage:
        return self._tried(super().answer_challenge(reference, confirmed=confirmed))

    def _tried(self, page: PspPage) -> PspPage:
        if page.collected_at is not None:
            self._newest = page
            _log(COLLECTED, page.request.token_id)
            if Fault.CLOSE in self.faults:
                _log(Fault.CLOSE, page.request.token_id)
                time.sleep(WAIT_SECONDS)
                self._kill_if_on()
        return page

    @override
    def holds(self, token: CardToken) -> bool:
        """Called when the service asks what became of a page with a card."""
        page = self._newest
        if page and page.collected_at and page.card and page.card.token == token:
            self._kill_if_on()
            if Fault.HANG in self.faults and self.clock.now() < page.collected_at + HANG:
                _log(Fault.HANG, page.request.token_id)
                time.sleep(WAIT_SECONDS)
                raise PspUnavailable
        return super().holds(token)

    def _kill_if_on(self) -> None:
        """End this process at the worst moment: the PSP has a card, and nothing is stored here."""
        if Fault.KILL in self.faults:
            os.kill(os.getpid(), signal.SIGKILL)

    @override
    def take_due_event(self, now: datetime, *, until: datetime) -> DueEvent | None:
        # A process that is going to be killed leaves its webhooks to the next one.
        event = None if Fault.KILL in self.faults else super().take_due_event(now, until=until)
        if event is None:
            return None
        if Fault.HANG in self.faults and event.age < HANG:
            self.postpone_event(event, now + HANG - event.age)
        elif Fault.LOSE in self.faults:
            _log(Fault.LOSE, json.loads(event.body)["events"][0]["token_id"])
            self.remove_event(event)
        else:
            return event
        return None


def _log(event: str, token_id: str) -> None:
    structlog.get_logger().info(event, session=token_id[:SHOWN_OF_TOKENS])


def main() -> None:
    """Serve on the socket whose descriptor is the argument, until standard input closes."""
    listening = socket.socket(fileno=int(sys.argv[1]))
    host, port = listening.getsockname()
    configure_logs(LogFormat.JSON)
    settings = Settings.read(os.environ, host=host, port=port)
    own = settings.psps[NAME].settings
    psp = FaultyPsp(own.database, base_url=own.base_url, clock=SystemClock(), ids=RandomIds())
    fake = FakeProvider(psp, webhook_secret=psp.webhook_secret, clock=psp.clock)
    installed = InstalledPsp(replace(PLUGIN, make=lambda *_: fake), own)
    settings = replace(settings, psps={**settings.psps, NAME: installed})
    service = Service(build(settings), listening)

    def obey() -> None:
        # Unbuffered: Python cannot end while a thread reads from a buffer.
        while lines := os.read(sys.stdin.fileno(), 1024).decode().splitlines():
            psp.switch(frozenset(lines[-1].split()))
        service.stop()

    threading.Thread(target=obey, daemon=True).start()
    announce(settings, pid=os.getpid())
    service.run()


if __name__ == "__main__":
    main()
