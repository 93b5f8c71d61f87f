"""How the SDK reaches Stripe: one connection for one call of the port, under one deadline.

The SDK's own HTTP clients bound each wait for bytes and not their sum: a body that drips keeps a
caller for as long as it drips, and so do a few retries. Here connecting, sending, reading, waiting
and retrying all draw on the same few seconds.
"""

from __future__ import annotations

import http.client
import io
import socket
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from urllib.parse import urlsplit

import stripe
from typing_extensions import override

MAX_ANSWER_BYTES: Final = 1024 * 1024
MAX_TRIES: Final = 3

_PASSED_ON: Final = ("request-id", "idempotent-replayed", "retry-after")
"""The headers that are of use here. The SDK prints others, such as notices, to standard error."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """How long a call of the port may take in all, to connect, and between two tries."""

    total_seconds: float = 5
    connect_seconds: float = 2
    pause_seconds: float = 0.25


class Deadline:
    """The moment at which a call of the port is over, whatever it is doing."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def remaining(self) -> float:
        """Give the seconds that are left. Raises TimeoutError when there are none."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("Stripe took too long")
        return left


class Transport(stripe.HTTPClient):
    """Sends the requests of one call of the port, and follows no redirect.

    A request that broke, or that Stripe says is worth it, is sent again as it is, its idempotency
    key included (Stripe API reference, "Idempotent requests" and "Errors").
    """

    name = "http.client"

    def __init__(self, patience: Patience, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._patience = patience
        self._tls = tls
        self._deadline = Deadline(patience.total_seconds)
        self._connection: http.client.HTTPConnection | None = None

    @override
    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] | None,
        post_data: Any = None,  # as the SDK has it: text that is form-encoded, or None
        *,
        _usage: list[str] | None = None,
    ) -> tuple[str, int, Mapping[str, str]]:
        failure = ""
        for tries_left in reversed(range(MAX_TRIES)):
            answer: _Answer | None = None
            try:
                answer = self._try(method, url, dict(headers or {}), post_data)
            except (OSError, http.client.HTTPException, UnicodeDecodeError) as error:
                self.close()
                # Its kind alone: the failure itself would keep the broken connection from closing.
                failure = type(error).__name__
            may_repeat = tries_left > 0 and self._has_time_left()
            if answer is not None and not (may_repeat and answer.is_worth_repeating):
                return answer.body, answer.status, answer.headers
            if not may_repeat:
                break
            time.sleep(self._patience.pause_seconds)
        raise stripe.APIConnectionError("Stripe gave no answer", code=failure)  # type: ignore[no-untyped-call]  # the SDK left it bare

    @override
    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _try(self, method: str, url: str, headers: dict[str, str], data: str | None) -> _Answer:
        """Send a request and give the answer; raises whatever keeps it from coming whole."""
        target = urlsplit(url)
        path = f"{target.path}?{target.query}" if target.query else target.path
        connection = self._open(target.hostname or "", target.port)
        connection.sock.settimeout(self._deadline.remaining())
        connection.request(method.upper(), path, body=data, headers=headers)
        response = connection.getresponse()
        body = response.read(MAX_ANSWER_BYTES + 1)
        if len(body) > MAX_ANSWER_BYTES:
            raise http.client.HTTPException("the answer is too long")
        return _Answer(response.status, response.headers, body.decode())

    def _open(self, host: str, port: int | None) -> http.client.HTTPConnection:
        """Give the connection, made anew when there is none or Stripe has closed it."""
        connection = self._connection
        if connection is None:
            connection = (
                http.client.HTTPConnection(host, port)
                if self._tls is None
                else http.client.HTTPSConnection(host, port, context=self._tls)
            )
            # What it calls to read an answer; the attribute is there to be replaced.
            connection.response_class = partial(_Response, self._deadline)  # type: ignore[assignment]  # a class to mypy, a callable to http.client
            self._connection = connection
        if connection.sock is None:
            connection.sock = self._connect(connection.host, connection.port)
        return connection

    def _connect(self, host: str, port: int) -> socket.socket:
        """Connect to the first address of the host that takes us, all within the deadline.

        Looking the name up is the system's doing, and takes the time that its resolver allows.
        """
        refusal: OSError = OSError("the host has no address")
        for family, kind, protocol, _, address in socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM
        ):
            try:
                # Making the socket may fail by itself: the machine may not have this family.
                return self._connect_to(socket.socket(family, kind, protocol), address, host)
            except OSError as error:
                refusal = error
        raise refusal

    # Any: what the system calls an address depends on the family.
    def _connect_to(self, sock: socket.socket, address: Any, host: str) -> socket.socket:
        try:
            sock.settimeout(self._connect_seconds())
            sock.connect(address)
            if self._tls is None:
                return sock
            sock.settimeout(self._connect_seconds())
            return self._tls.wrap_socket(sock, server_hostname=host)
        except OSError:
            sock.close()
            raise

    def _connect_seconds(self) -> float:
        return min(self._patience.connect_seconds, self._deadline.remaining())

    def _has_time_left(self) -> bool:
        try:
            return self._deadline.remaining() > self._patience.pause_seconds
        except TimeoutError:
            return False


class _Answer:
    """What Stripe answered, whatever it means."""

    def __init__(self, status: int, headers: http.client.HTTPMessage, body: str) -> None:
        self.status = status
        self.headers = {name: headers[name] for name in _PASSED_ON if name in headers}
        self.body = body
        # "Advanced error handling": Stripe may say itself whether it may answer otherwise next time.
        advice = headers.get("stripe-should-retry")
        is_passing = status == http.client.CONFLICT or status >= http.client.INTERNAL_SERVER_ERROR
        self.is_worth_repeating = advice == "true" or (advice != "false" and is_passing)


class _Response(http.client.HTTPResponse):
    """An answer whose every wait for bytes ends at the deadline."""

    def __init__(self, deadline: Deadline, sock: socket.socket, **options: Any) -> None:
        # Any, because they are passed on as http.client gave them.
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_UntilDeadline(self.fp.detach(), sock, deadline))


class _UntilDeadline(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._deadline = deadline

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int | None:  # Any: whatever takes bytes
        self._sock.settimeout(self._deadline.remaining())
        return self._raw.readinto(buffer)

    @override
    def close(self) -> None:
        self._raw.close()
        super().close()


def trusted_by_the_sdk() -> ssl.SSLContext:
    """Give a TLS context that trusts whom the SDK trusts: the certificates it comes with."""
    return ssl.create_default_context(cafile=stripe.ca_bundle_path)
