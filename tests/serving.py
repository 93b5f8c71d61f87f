"""The service as operators run it: `cardonfile serve`, or granian beside `cardonfile work`."""

from __future__ import annotations

import http.client
import json
import signal
import socket
from collections.abc import Sequence
from contextlib import ExitStack, closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from domain.card_sessions import SessionStatus
from domain.identifiers import TokenId
from tests.adapters.http.api import ACCOUNTS, GOOD_BODY
from tests.installation import Installation
from tests.programs import DEADLINE_SECONDS, SERVE, Program, free_port
from tests.waiting import wait_until

WAITRESS: Final = "waitress"
GRANIAN: Final = "granian"
SERVERS: Final = (WAITRESS, GRANIAN)

START_GRANIAN: Final = "from granian.cli import entrypoint; entrypoint()"
GRANIAN_OPTIONS: Final = (
    *("--interface", "wsgi", "--factory", "--blocking-threads", "8", "--log-level", "critical"),
    "entrypoints.wsgi:create_application",
)
"""Those of docs/scaling.md, without granian's own lines in the log."""

BODY: Final = json.dumps(GOOD_BODY).encode()


class Serving:
    """An installation that real processes serve, on a port of its own."""

    def __init__(
        self,
        folder: Path,
        server: str,
        *,
        workers: int = 1,
        base_url: str | None = None,
        **environment: Any,  # they are keywords too
    ) -> None:
        """Take where browsers reach it, if that is not its own port."""
        self.port = free_port()
        self.base_url = base_url or f"http://127.0.0.1:{self.port}"
        self.installation = Installation(folder, base_url=self.base_url)
        # The service has the real time.
        self.installation.clock.advance(datetime.now(UTC) - self.installation.clock.now())
        self.token = self.installation.token_for(self.installation.caller)
        self._stack = ExitStack()
        self._workers = workers
        settings = {
            "CARDONFILE_DATABASE_URL": f"sqlite:///{self.installation.settings.database}",
            "CARDONFILE_PUBLIC_BASE_URL": self.base_url,
            "CARDONFILE_LOG_FORMAT": "json",
            **environment,
        }
        listens_on = ("--port", str(self.port))
        commands: Sequence[tuple[str, ...]] = (
            [(SERVE, "serve", *listens_on)]
            if server == WAITRESS
            else [
                (START_GRANIAN, "--workers", str(workers), *listens_on, *GRANIAN_OPTIONS),
                (SERVE, "work"),
            ]
        )
        self.programs = []
        for number, command in enumerate(commands):
            own = folder / f"program-{number}"
            own.mkdir()
            self.programs.append(Program(own, *command, **settings))

    def __enter__(self) -> Self:
        for program in self.programs:
            self._stack.enter_context(program)
        try:
            wait_until(self._all_are_ready, seconds=DEADLINE_SECONDS)
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
        """Give the lines of all logs."""
        return [line for program in self.programs for line in program.lines(event)]

    def stop(self) -> list[int]:
        """Have all processes finish; give their exit statuses."""
        for program in self.programs:
            program.tell(signal.SIGTERM)
        return [program.ends() for program in self.programs]

    def connect(self) -> http.client.HTTPConnection:
        """Give a connection that is not open yet."""
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_SECONDS)

    def is_listening(self) -> bool:
        """Tell whether a new connection is taken."""
        with closing(socket.socket()) as attempt:
            return attempt.connect_ex(("127.0.0.1", self.port)) == 0

    def status(self, path: str) -> int:
        """Ask for a page on a connection of its own; 0 when nobody answers."""
        with suppress(ConnectionError), closing(self.connect()) as connection:
            return got(connection, path).status
        return 0

    def add_card(
        self, connection: http.client.HTTPConnection, *, key: str | None = None
    ) -> TokenId:
        """Add a card, which must succeed."""
        headers = self._headers() | ({"Idempotency-Key": key} if key else {})
        connection.request("POST", ACCOUNTS, body=BODY, headers=headers)
        return answered(connection)

    def begin_to_add_card(self) -> http.client.HTTPConnection:
        """Have half a request in flight."""
        connection = self.connect()
        connection.putrequest("POST", ACCOUNTS)
        for name, value in {**self._headers(), "Content-Length": str(len(BODY))}.items():
            connection.putheader(name, value)
        connection.endheaders()
        connection.send(BODY[:5])
        return connection

    def wait_until_settled(self, token_id: TokenId) -> SessionStatus:
        """Wait until a session has ended, and tell how."""

        def status() -> SessionStatus | None:
            now = self.installation.session(token_id).status
            return None if now is SessionStatus.OPEN else now

        return wait_until(status, seconds=DEADLINE_SECONDS)

    def _all_are_ready(self) -> bool:
        if self.status("/readyz") != 200:
            return False
        # Until then a signal would end it as it ends any program.
        if len(self.programs) > 1 and not self.lines("working"):
            return False
        answering = {line.get("process") for line in self.lines("request")}
        return self._workers in (1, len(answering))

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"bearer {self.token}", "Content-Type": "application/json"}


def end_adding_card(connection: http.client.HTTPConnection) -> TokenId:
    """Send the other half; the request must succeed."""
    connection.send(BODY[5:])
    return answered(connection)


def got(connection: http.client.HTTPConnection, path: str) -> http.client.HTTPResponse:
    """Ask for a page, and give the answer, which has been read."""
    connection.request("GET", path)
    response = connection.getresponse()
    response.read()
    return response


def answered(connection: http.client.HTTPConnection) -> TokenId:
    """Give the session that an add-card has begun."""
    response = connection.getresponse()
    text = response.read()
    assert response.status == 200, text
    return TokenId(json.loads(text)["token_id"])
