"""Calls to a PSP over HTTP, all those of one method of the port under one deadline.

`JsonApi` is for a PSP whose API speaks JSON. `HttpClient` is what it stands on, for any other.
"""

from __future__ import annotations

import http.client
import io
import re
import select
import socket
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import cache, partial
from http import HTTPStatus
from types import TracebackType
from typing import Any, Final, Self, TypeVar, overload
from urllib.parse import urlencode, urlsplit

import msgspec
from typing_extensions import override

from adapters.psp.settings import is_https_or_loopback
from domain.ports import FailureDetails, ProviderRefused, ProviderUnavailable

# Why not a client off the shelf: httpx, urllib3, requests and their kin bound each wait for bytes,
# and not their sum, so that headers or a body that drip keep a caller for as long as they drip.
# libcurl (pycurl) bounds the whole of a transfer, but its wheels have a TLS library of their own,
# which updates of the system do not reach.

_Decoded = TypeVar("_Decoded")

MAX_RESPONSE_BYTES: Final = 1024 * 1024
MAX_HEAD_BYTES: Final = 64 * 1024
"""How much may come beside the body: status, headers, the lengths of chunks."""

_SECONDS: Final = re.compile(r"[0-9]{1,6}")
# What may be logged as a PSP's own word: no text, no address, nothing that a guest has typed.
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/\-]{1,100}")

_GONE: Final = frozenset({HTTPStatus.NOT_FOUND, HTTPStatus.GONE})
_REFUSALS: Final = frozenset({HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY})


class NotFound(ProviderRefused):
    """The PSP has no such object, or has it no more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long all calls together may take, to connect, and between two tries; how many tries.

    The port wants no method to wait longer than 5 seconds, and takes one that ends within 4 for one
    that did not hang.
    """

    total_seconds: float = 4.8
    connect_seconds: float = 2
    pause_seconds: float = 0.25
    tries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """What came back, whatever it means. The names of headers are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_passing(response: Response) -> bool:
    """Tell whether the same request may well succeed in a moment.

    So it is when another is under way (409), and after a fault of the PSP (5xx) that has not said
    how long it wants no more calls.
    """
    is_fault = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return response.status == HTTPStatus.CONFLICT or (
        is_fault and "retry-after" not in response.headers
    )


class HttpClient:
    """Sends requests to one host over one connection, until a deadline that begins when it is made.

    Used as a context, which closes the connection; made anew for each call of the port. Connecting,
    TLS, sending, every wait for bytes, pauses and further tries draw on the same seconds; only
    looking a name up is the system's doing, and takes the time that its resolver allows. It follows
    no redirect, and takes no proxy from the environment.

    A request is sent again as it is when no response came, or one that `is_worth_repeating`. This
    is safe because every call of the port can be repeated: one that makes something carries an
    idempotency key. For a PSP without such keys, switch it off by `RetryPolicy(tries=1)`.

    `headers` go with every request. `tls` says whom to trust: None is for whom the system trusts.
    Raises ValueError for a `base_url` that is neither https nor, as in tests, http on loopback.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        retry_policy: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        is_worth_repeating: Callable[[Response], bool] = is_passing,
    ) -> None:
        if not is_https_or_loopback(base_url):
            raise ValueError("the address of a PSP must be https, or http on loopback")
        self._base = urlsplit(base_url.rstrip("/"))
        self._headers = dict(headers or {})
        self._retry_policy = retry_policy or RetryPolicy()
        self._tls = (tls or _trusted_by_the_system()) if self._base.scheme == "https" else None
        self._is_worth_repeating = is_worth_repeating
        self._deadline = _Deadline(self._retry_policy.total_seconds)
        self._connection: http.client.HTTPConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        _: type[BaseException] | None,
        __: BaseException | None,
        ___: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        """Send a request, and give the response whatever its status.

        `path` begins with a slash, and is put behind the base's; it may have a query. Quote what
        you put into it. Raises ProviderUnavailable when no response came whole in time, or one of
        more than 1 MiB.
        """
        failure = ""
        for tries_left in reversed(range(self._retry_policy.tries)):
            response: Response | None = None
            try:
                response = self._try(method, path, {**self._headers, **(headers or {})}, body)
            # ValueError: a header or a path that cannot be sent, such as a key with a line break.
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                # Its kind alone: the failure itself would keep the broken connection from closing.
                failure = type(error).__name__
            may_repeat = tries_left > 0 and self._has_time_left()
            if response is not None and not (may_repeat and self._is_worth_repeating(response)):
                return response
            if not may_repeat:
                break
            time.sleep(self._retry_policy.pause_seconds)
        raise ProviderUnavailable("no response", details=FailureDetails(error=failure))

    def _try(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Response:
        """Send a request once; raises whatever keeps the response from coming whole."""
        connection = self._open()
        connection.sock.settimeout(self._deadline.remaining())
        connection.request(method.upper(), self._base.path + path, body=body, headers=headers)
        received = connection.getresponse()
        if received.status < HTTPStatus.OK:
            # http.client skips 100 alone; the final response would be taken for the next one's.
            raise http.client.HTTPException("an interim response")
        content = received.read(MAX_RESPONSE_BYTES + 1)
        if len(content) > MAX_RESPONSE_BYTES:
            raise http.client.HTTPException("the response is too long")
        if received.length:
            raise http.client.IncompleteRead(content, received.length)
        return Response(
            status=received.status,
            headers={name.lower(): value for name, value in received.headers.items()},
            body=content,
        )

    def _open(self) -> http.client.HTTPConnection:
        """Give the connection, made anew when there is none or the PSP has closed it."""
        connection = self._connection
        if connection is not None and connection.sock is not None and _has_news(connection.sock):
            # The PSP has closed it, or sent what nobody asked for.
            connection.close()
        if connection is None:
            host, port = self._base.hostname or "", self._base.port
            connection = (
                http.client.HTTPConnection(host, port)
                if self._tls is None
                else http.client.HTTPSConnection(host, port, context=self._tls)
            )
            # What it calls to read a response; the attribute is there to be replaced.
            connection.response_class = partial(_Response, self._deadline)  # type: ignore[assignment]  # a class to mypy, a callable to http.client
            self._connection = connection
        if connection.sock is None:
            connection.sock = self._connect(connection.host, connection.port)
        return connection

    def _connect(self, host: str, port: int) -> socket.socket:
        """Connect to the first address of the host that takes us, all within the deadline."""
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
        return min(self._retry_policy.connect_seconds, self._deadline.remaining())

    def _has_time_left(self) -> bool:
        try:
            return self._deadline.remaining() > self._retry_policy.pause_seconds
        except TimeoutError:
            return False


class JsonApi(HttpClient):
    """An HTTP client for an API that speaks JSON, which puts responses into the port's words.

        PAGE = msgspec.json.Decoder(Page)

        with JsonApi("https://api.acme.example/v1", headers={"Authorization": key}) as api:
            page = api.ask(
                PAGE, "POST", "/pages", json={"kind": "card"}, headers={"Idempotency-Key": key}
            )

    | Response | Becomes |
    |---|---|
    | 2xx that decodes | what it decodes to |
    | 404 or 410 with a JSON object | NotFound, which is a ProviderRefused |
    | 400 or 422 with a JSON object | ProviderRefused |
    | any other with Retry-After in seconds, such as 429 | ProviderUnavailable with `retry_after` |
    | anything else, and none at all | ProviderUnavailable: the PSP may have acted |

    A refusal without a JSON object is no word of the API: a proxy may have answered.

    `request_id_header` names the header with what the PSP's support finds a call by. `error_code`
    names the keys that lead to the PSP's code in the body of a failure, such as ("error", "code").
    Both get into the failure's `details`, as far as they are words of ASCII.
    """

    def __init__(
        self,
        base_url: str,
        *,
        headers: Mapping[str, str] | None = None,
        request_id_header: str = "",
        error_code: Sequence[str] = (),
        retry_policy: RetryPolicy | None = None,
        tls: ssl.SSLContext | None = None,
        is_worth_repeating: Callable[[Response], bool] = is_passing,
    ) -> None:
        super().__init__(
            base_url,
            headers={"Accept": "application/json", **(headers or {})},
            retry_policy=retry_policy,
            tls=tls,
            is_worth_repeating=is_worth_repeating,
        )
        self._request_id_header = request_id_header.lower()
        self._error_code = error_code

    @overload
    def ask(
        self,
        decoder: msgspec.json.Decoder[_Decoded],
        method: str,
        path: str,
        *,
        json: object = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Decoded: ...

    @overload
    def ask(
        self,
        decoder: None,
        method: str,
        path: str,
        *,
        json: object = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None: ...

    def ask(
        self,
        decoder: msgspec.json.Decoder[_Decoded] | None,
        method: str,
        path: str,
        *,
        json: object = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Decoded | None:
        """Send a request, and give what the decoder makes of the response; without one, None.

        Make each decoder once, at import: msgspec crashes when several threads are the first to
        read a type (0.22). `json` is the body, whatever msgspec encodes, or `form`, whose values
        are encoded as those of an HTML form; without either there is no body.
        Raises ProviderUnavailable and ProviderRefused, as the table says.
        """
        sent = dict(headers or {})
        body: bytes | None = None
        if json is not None:
            sent.setdefault("Content-Type", "application/json")
            body = msgspec.json.encode(json)
        elif form is not None:
            sent.setdefault("Content-Type", "application/x-www-form-urlencoded")
            body = urlencode(form).encode()
        response = self.send(method, path, headers=sent, body=body)
        if response.status // 100 != 2:
            raise self._failure(response)
        if decoder is None:
            return None
        try:
            return decoder.decode(response.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            kind = type(error).__name__
        # Outside of the handler: the cause would quote the body.
        raise ProviderUnavailable(
            "the response cannot be understood", details=self._details(response, error=kind)
        )

    def _failure(self, response: Response) -> ProviderUnavailable | ProviderRefused:
        reason, details = f"HTTP {response.status}", self._details(response)
        if _object(response.body) is not None:
            if response.status in _GONE:
                return NotFound(reason, details=details)
            if response.status in _REFUSALS:
                return ProviderRefused(reason, details=details)
        return ProviderUnavailable(
            reason, retry_after=retry_after(response.headers), details=details
        )

    def _details(self, response: Response, *, error: str | None = None) -> FailureDetails:
        code: object = _object(response.body)
        for key in self._error_code:
            code = code.get(key) if isinstance(code, dict) else None
        return FailureDetails(
            error=error,
            status=response.status,
            code=_word(code) if self._error_code else None,
            request_id=_word(response.headers.get(self._request_id_header)),
        )


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Give how long a PSP wants no more calls, if it says so in seconds.

    The headers' names are in lower case.
    """
    seconds = headers.get("retry-after", "")
    return timedelta(seconds=int(seconds)) if _SECONDS.fullmatch(seconds) else None


# Any: a body of an error holds whatever JSON it holds; it is only looked at.
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        return _OBJECT.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _word(value: object) -> str | None:
    text = str(value) if isinstance(value, str | int) else ""
    return text if _WORD.fullmatch(text) else None


class _Deadline:
    """The moment at which a call of the port is over, whatever it is doing."""

    def __init__(self, seconds: float) -> None:
        self._ends_at = time.monotonic() + seconds

    def remaining(self) -> float:
        """Give the seconds that are left. Raises TimeoutError when there are none."""
        left = self._ends_at - time.monotonic()
        if left <= 0:
            raise TimeoutError("the PSP took too long")
        return left


class _Response(http.client.HTTPResponse):
    """A response whose every wait for bytes ends at the deadline."""

    def __init__(self, deadline: _Deadline, sock: socket.socket, **options: Any) -> None:
        # Any, because they are passed on as http.client gave them.
        super().__init__(sock, **options)
        self.fp = io.BufferedReader(_UntilDeadline(self.fp.detach(), sock, deadline))


def _has_news(sock: socket.socket) -> bool:
    watched = select.poll()
    watched.register(sock, select.POLLIN)
    return bool(watched.poll(0))


class _UntilDeadline(io.RawIOBase):
    def __init__(self, raw: io.RawIOBase, sock: socket.socket, deadline: _Deadline) -> None:
        super().__init__()
        self._raw = raw
        self._sock = sock
        self._deadline = deadline
        self._bytes_left = MAX_RESPONSE_BYTES + MAX_HEAD_BYTES

    @override
    def readable(self) -> bool:
        return True

    @override
    def readinto(self, buffer: Any) -> int | None:  # Any: whatever takes bytes
        self._sock.settimeout(self._deadline.remaining())
        count = self._raw.readinto(buffer)
        self._bytes_left -= count or 0
        if self._bytes_left < 0:
            # Whatever length it announces: http.client believes a chunk of -1 bytes.
            raise http.client.HTTPException("the response is too long")
        return count

    @override
    def close(self) -> None:
        self._raw.close()
        super().close()


@cache
def _trusted_by_the_system() -> ssl.SSLContext:
    # Made once: reading the certificates takes longer than a call.
    return ssl.create_default_context()
