"""HTTP requests over one connection, with a deadline and a limit of bytes."""

from __future__ import annotations

import http.client
import io
import select
import socket
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import cache, partial
from http import HTTPStatus
from threading import Thread
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from typing_extensions import override

# No HTTP client package is used. httpx, urllib3 and requests limit each wait for bytes, but not the
# sum of the waits, so a response that arrives byte by byte can block a caller for ever. libcurl
# (pycurl) limits a whole transfer, but its wheels contain a TLS library that system updates miss.

MAX_HEAD_BYTES: Final = 64 * 1024
"""The limit for everything but the body: status line, headers, chunk lengths."""

Returned = TypeVar("Returned")

# Any: the type of an address depends on its family.
AddressInfo: TypeAlias = tuple[int, int, int, str, Any]
"""An address with family, kind of socket and protocol, as `socket.getaddrinfo` returns it."""

LookUp: TypeAlias = Callable[[str, int], Iterable[AddressInfo]]
"""Returns the addresses of a host and port to which connections are allowed, in order of
preference.
"""


def look_up(host: str, port: int) -> Iterable[AddressInfo]:
    """Return all IP addresses of a host. Takes as long as the system's resolver allows."""
    return socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)


CERTIFICATE_NOT_TRUSTED: Final = "certificate not trusted"
# The first match is used, because most of them are subclasses of OSError.
_REASONS: Final = (
    (TimeoutError, "no response in time"),
    (socket.gaierror, "name not found"),
    (ConnectionRefusedError, "connection refused"),
    (ssl.SSLCertVerificationError, CERTIFICATE_NOT_TRUSTED),
    (ssl.SSLError, "TLS failed"),
    (ConnectionError, "connection closed"),
    (http.client.HTTPException, "no valid response"),
    (OSError, "not reachable"),
)


def reason_of(error: OSError | http.client.HTTPException) -> str:
    """Return a short reason why a request failed. It does not contain sent or received data."""
    return next(text for kind, text in _REASONS if isinstance(error, kind))


def begin(work: Callable[[], Returned]) -> Future[Returned]:
    """Run work in a daemon thread, and return a Future for its result.

    Use this for work that has no time limit, such as a call of the system's resolver. A daemon
    thread does not prevent the process from ending.
    """
    begun: Future[Returned] = Future()

    def run() -> None:
        try:
            begun.set_result(work())
        except BaseException as error:  # noqa: BLE001 - raised where the result is taken
            begun.set_exception(error)

    Thread(target=run, daemon=True).start()
    return begun


class Deadline:
    """A deadline for several steps of work: a number of seconds after this object is created."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def remaining(self) -> float:
        """Return the seconds left. Raises TimeoutError if no time is left."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the request took too long")
        return left


class Connection:
    """A connection to the host of a URL. It is opened when needed, and reopened if the host closes it.

    The deadline is `total_seconds` after the creation of this object. It covers everything: looking
    up the host, connecting (at most `connect_seconds` for one address), TLS, sending, and waiting
    for bytes.

    `look_up` returns the IP addresses, and no other address is used. TLS and the header `Host` use
    the name of the host. A response body has at most `max_body_bytes`. `tls` defaults to the
    certificates that the system trusts. Redirects are not followed, and proxy settings in the
    environment are ignored.
    """

    def __init__(
        self,
        url: str,
        *,
        total_seconds: float,
        connect_seconds: float,
        max_body_bytes: int,
        tls: ssl.SSLContext | None = None,
        look_up: LookUp = look_up,
    ) -> None:
        parts = urlsplit(url)
        self._tls = (tls or _trusted_by_the_system()) if parts.scheme == "https" else None
        self._host = parts.hostname or ""
        # Without a port, http.client would read the end of an IPv6 address as a port.
        default_port = http.client.HTTP_PORT if self._tls is None else http.client.HTTPS_PORT
        self._port = parts.port or default_port
        self._connect_seconds = connect_seconds
        self._max_bytes = max_body_bytes + MAX_HEAD_BYTES
        self._look_up = look_up
        self._connection: http.client.HTTPConnection | None = None
        self.deadline = Deadline(total_seconds)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def request(
        self, method: str, target: str, headers: Mapping[str, str], body: bytes | None
    ) -> http.client.HTTPResponse:
        """Send a request, and return the response when its head has arrived.

        `target` is the path with the query. The deadline and the limit also apply when the caller
        reads the body. Raises OSError or HTTPException on failure, ValueError if a header or the
        target cannot be sent, and the exceptions of `look_up`. After an exception, the connection
        must be closed.
        """
        connection = self.open()
        connection.sock.settimeout(self.deadline.remaining())
        connection.request(method, target, body=body, headers=headers)
        response = connection.getresponse()
        if response.status < HTTPStatus.OK:
            # http.client skips only status 100. After any other 1xx status, the next request would
            # receive the final response of this request.
            raise http.client.HTTPException("the server sent an interim response")
        return response

    def open(self) -> http.client.HTTPConnection:
        """Return the open connection. Connect if no connection is open, or if the host closed it.

        Does not send anything. Raises the same exceptions as `request`.
        """
        connection = self._connection
        if connection is not None and connection.sock is not None and _is_readable(connection.sock):
            # The host has closed the connection, or has sent unsolicited bytes.
            connection.close()
        if connection is None:
            connection = (
                http.client.HTTPConnection(self._host, self._port)
                if self._tls is None
                else http.client.HTTPSConnection(self._host, self._port, context=self._tls)
            )
            # http.client documents this attribute as replaceable.
            response_class = partial(_Response, self.deadline, self._max_bytes)
            connection.response_class = response_class  # type: ignore[assignment]  # any callable
            self._connection = connection
        if connection.sock is None:
            connection.sock = self._connect(connection.host, connection.port)
        return connection

    def _connect(self, host: str, port: int) -> socket.socket:
        """Connect to the first IP address of the host that accepts a connection."""
        refusal: OSError = OSError("the host has no address")
        for family, kind, protocol, _, address in self._look_up(host, port):
            try:
                # Creating the socket may also fail, on a machine without this address family.
                return self._connect_to(socket.socket(family, kind, protocol), address, host)
            except OSError as error:
                refusal = error
        raise refusal

    # Any: the type of an address depends on its family.
    def _connect_to(self, sock: socket.socket, address: Any, host: str) -> socket.socket:
        try:
            sock.settimeout(self._seconds_to_connect())
            sock.connect(address)
            if self._tls is None:
                return sock
            sock.settimeout(self._seconds_to_connect())
            return self._tls.wrap_socket(sock, server_hostname=host)
        except OSError:
            sock.close()
            raise

    def _seconds_to_connect(self) -> float:
        return min(self._connect_seconds, self.deadline.remaining())


class _Response(http.client.HTTPResponse):
    """A response whose reading fails if it is not complete by the deadline."""

    def __init__(
        self, deadline: Deadline, max_bytes: int, sock: socket.socket, **options: Any
    ) -> None:
        # Any: the values are passed through from http.client.
        super().__init__(sock, **options)
        bounded = _UntilDeadline(self.fp.detach(), sock, deadline, max_bytes)
        self.fp = io.BufferedReader(bounded)


def _is_readable(sock: socket.socket) -> bool:
    watched = select.poll()
    watched.register(sock, select.POLLIN)
    return bool(watched.poll(0))


class _UntilDeadline(io.RawIOBase):
    def __init__(
        self, raw: io.RawIOBase, sock: socket.socket, deadline: Deadline, max_bytes: int
    ) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._deadline = deadline
        self._bytes_left = max_bytes

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int | None:  # Any: a writable buffer
        self._sock.settimeout(self._deadline.remaining())
        count = self._raw.readinto(buffer)
        self._bytes_left -= count or 0
        if self._bytes_left < 0:
            # This is checked here, because http.client accepts a chunk of -1 bytes.
            raise http.client.HTTPException("the response is too long")
        return count

    @override
    def close(self) -> None:
        self._raw.close()
        super().close()


@cache
def _trusted_by_the_system() -> ssl.SSLContext:
    # The context is cached, because reading the certificates takes longer than a call.
    return ssl.create_default_context()
