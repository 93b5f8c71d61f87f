"""The service in separate processes: `cardonfile serve`, or granian with `cardonfile work`."""

from __future__ import annotations

import http.client
import json
import re
import shlex
import signal
import socket
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from domain.identifiers import TokenId
from domain.sessions.end import SessionStatus
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.installation import Installation
from tests.programs import ROOT, RUNTIME, SERVE, Program, Server, free_port
from tests.waiting import wait_until

WAITRESS: Final = "waitress"
GRANIAN: Final = "granian"
SERVERS: Final = (WAITRESS, GRANIAN)

START_GRANIAN: Final = RUNTIME + "from granian.cli import entrypoint; entrypoint()"
_OPERATIONS: Final = (ROOT / "docs" / "operations.md").read_text().replace("\\\n", " ")
_, *_DOCUMENTED = shlex.split(re.findall(r"^granian .*$", _OPERATIONS, re.MULTILINE)[0])
GRANIAN_OPTIONS: Final = (*_DOCUMENTED, "--log-level", "critical")
"""The documented options, without granian's own log lines. The last value of an option is used."""

BODY: Final = json.dumps(GOOD_BODY).encode()


class Serving(Server):
    """An installation that real processes serve on a free port."""

    def __init__(
        self,
        folder: Path,
        server: str,
        *,
        program: str = SERVE,
        workers: int = 1,
        base_url: str | None = None,
        **environment: Any,  # they are keywords too
    ) -> None:
        """Prepare to serve a new installation with `server`, one of SERVERS.

        `program` is the source of the command line. `workers` is how many processes granian starts.
        `base_url` is the public base URL. By default, it is the address of the service's port.
        """
        self.port = free_port()
        self.base_url = base_url or f"http://127.0.0.1:{self.port}"
        self.installation = Installation(folder, base_url=self.base_url)
        # The processes use the real time.
        self.installation.clock.advance(datetime.now(UTC) - self.installation.clock.now())
        self.token = self.installation.token_for(self.installation.caller)
        self.headers = {"Authorization": f"bearer {self.token}", "Content-Type": "application/json"}
        self._stack = ExitStack()
        self._workers = workers
        settings = {
            "CARDONFILE_DATABASE_URL": f"sqlite:///{self.installation.settings.database}",
            "CARDONFILE_PUBLIC_BASE_URL": self.base_url,
            "CARDONFILE_LOG_FORMAT": "json",
            "CARDONFILE_CARD_TESTING_LIMITS": "off",
            **environment,
        }
        port = ("--port", str(self.port))
        commands: list[tuple[str, ...]] = [(program, "serve", *port)]
        if server == GRANIAN:
            commands = [
                (START_GRANIAN, *GRANIAN_OPTIONS, "--workers", str(workers), *port),
                (program, "work"),
            ]
        self.programs = []
        for number, command in enumerate(commands):
            own = folder / f"program-{number}"
            own.mkdir()
            self.programs.append(Program(own, *command, **settings))

    def __enter__(self) -> Self:
        for program in self.programs:
            self._stack.enter_context(program)
        try:
            wait_until(self._all_are_ready)
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._stack.close()
        self.installation.close()

    def lines(self, event: str | None = None) -> list[dict[str, Any]]:
        """Return the lines of all logs, or those of an event."""
        return [line for program in self.programs for line in program.lines(event)]

    def stop(self) -> list[int]:
        """Stop all processes gracefully, and return their exit statuses."""
        for program in self.programs:
            program.tell(signal.SIGTERM)
        return [program.ends() for program in self.programs]

    def is_listening(self) -> bool:
        """Return whether the port accepts connections."""
        with closing(socket.socket()) as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def add_card(
        self, connection: http.client.HTTPConnection, *, key: str | None = None
    ) -> TokenId:
        """Add a card, which must succeed, and return its session."""
        headers = self.headers | ({"Idempotency-Key": key} if key else {})
        connection.request("POST", ACCOUNTS, body=BODY, headers=headers)
        return added(connection)

    def begin_to_add_card(self) -> http.client.HTTPConnection:
        """Send the first part of an add-card request. `end_adding_card` sends the rest."""
        connection = self.connect()
        connection.putrequest("POST", ACCOUNTS)
        for name, value in {**self.headers, "Content-Length": str(len(BODY))}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(BODY[:5])
        return connection

    def wait_until_settled(self, token_id: TokenId) -> SessionStatus:
        """Wait until a session has ended, and return its status."""

        def status() -> SessionStatus | None:
            now = self.installation.session(token_id).status
            return None if now is SessionStatus.OPEN else now

        return wait_until(status)

    def wait_for_webhook(self) -> None:
        """Wait until a webhook was answered 200."""
        wanted = {"route": "/webhooks/{provider}", "status": 200}.items()
        wait_until(lambda: any(wanted <= line.items() for line in self.lines("request")))

    def _all_are_ready(self) -> bool:
        # Of these two requests, only the second is logged.
        if self.status("/readyz") != 200 or self.status("/") != 404:
            return False
        # The worker logs this line after it has set its signal handlers.
        if len(self.programs) > 1 and not self.lines("working"):
            return False
        responding = {line.get("process") for line in self.lines("request")}
        return self._workers in (1, len(responding))


def end_adding_card(connection: http.client.HTTPConnection) -> TokenId:
    """Send the rest of the request, which must succeed, and return its session."""
    connection.send(BODY[5:])
    return added(connection)


def added(connection: http.client.HTTPConnection) -> TokenId:
    """Read the response to an add-card, which must be 200, and return its session."""
    response = connection.getresponse()
    text = response.read()
    assert response.status == 200, text
    return TokenId(json.loads(text)["token_id"])
