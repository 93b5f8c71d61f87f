"""HTTP clients for PSPs, with one deadline for all requests of one call to the port.

`JsonApi` is for APIs that use JSON. It extends `HttpClient`, which is for all other APIs.
"""

from __future__ import annotations

import http.client
import re
import ssl
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from http import HTTPStatus
from typing import Any, Final, Self, TypeVar
from urllib.parse import urlencode, urlsplit

import msgspec

from adapters.outbound_http import Connection
from adapters.psp.settings import is_https_or_loopback
from adapters.traces import TracesOfThreads, headers_of
from domain.psps.payment_provider import (
    FailureDetails,
    NotFound,
    ProviderRefused,
    ProviderUnavailable,
)

_Decoded = TypeVar("_Decoded")

MAX_RESPONSE_BYTES: Final = 1024 * 1024

_FIELD: Final = re.compile(r"at `\$\.([A-Za-z0-9_.\[\]]{1,100})`$")
_SECONDS: Final = re.compile(r"[0-9]{1,6}")
# Only a code or an id from a response may be logged. Free text may contain what a guest typed in.
_WORD: Final = re.compile(r"[A-Za-z0-9_.:/\-]{1,100}")


class Gone(ProviderRefused):
    """According to the PSP, the object existed but was removed."""


_REFUSALS: Final[Mapping[int, type[ProviderRefused]]] = {
    HTTPStatus.NOT_FOUND: NotFound,
    HTTPStatus.GONE: Gone,
    HTTPStatus.BAD_REQUEST: ProviderRefused,
    HTTPStatus.UNPROCESSABLE_ENTITY: ProviderRefused,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """The time limits of a client, and the maximum number of tries of each request (`tries`).

    `total_seconds` is the deadline for all requests of one method of the port together.
    `connect_seconds` is the limit for opening a connection, and `pause_seconds` is the wait between
    two tries. The port limits every method to 5 seconds. The circuit breaker counts a call that
    fails after 4 seconds or more as a time-out.
    """

    total_seconds: float = 4.8
    connect_seconds: float = 2
    pause_seconds: float = 0.25
    tries: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A response of any status. Header names are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


def is_passing(response: Response) -> bool:
    """Return whether the same request may succeed a moment later.

    Return True after 409 (another request is in progress) and after 5xx without Retry-After.
    """
    is_fault = response.status >= HTTPStatus.INTERNAL_SERVER_ERROR
    return response.status == HTTPStatus.CONFLICT or (
        is_fault and "retry-after" not in response.headers
    )


class HttpClient:
    """Sends requests to one host over one connection, until a deadline.

    Create a client for each call to the port, and use it in a `with` statement, which closes the
    connection. The deadline starts when the client is created. It covers connecting, TLS, sending,
    every wait for bytes, pauses and retries. Only a DNS lookup may take as long as the system's
    resolver allows. Redirects are not followed, and proxy settings in the environment are ignored.

    If no response arrives, or if `is_worth_repeating` returns True for the response, the same
    request is sent again. This is safe if requests that create objects have an idempotency key. For
    a PSP without idempotency keys, pass `RetryPolicy(tries=1)`.

    `headers` are sent with every request. `tls` defaults to the certificates that the system
    trusts. Raises ValueError if `base_url` is neither https nor, as in tests, http on loopback.
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
        self._base_path = urlsplit(base_url.rstrip("/")).path
        self._headers = dict(headers or {})
        self._retry_policy = retry_policy or RetryPolicy()
        self._is_worth_repeating = is_worth_repeating
        self._connection = Connection(
            base_url,
            total_seconds=self._retry_policy.total_seconds,
            connect_seconds=self._retry_policy.connect_seconds,
            max_body_bytes=MAX_RESPONSE_BYTES,
            tls=tls,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection, if there is one."""
        self._connection.close()

    def send(
        self,
        method: str,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        body: bytes | None = None,
    ) -> Response:
        """Send a request, and return the response, whatever its status is.

        `path` begins with a slash and is appended to the base URL. It may contain a query, whose
        values must be quoted. If the call belongs to a trace, `traceparent` is sent too. Raises
        ProviderUnavailable if no complete response of at most 1 MiB arrives in time.
        """
        headers = {**headers_of(TracesOfThreads().current()), **self._headers, **(headers or {})}
        failure = ""
        for tries_left in reversed(range(self._retry_policy.tries)):
            response: Response | None = None
            try:
                response = self._try(method, path, headers, body)
            # A ValueError means that a header or a path cannot be sent, such as a key with a
            # newline.
            except (OSError, http.client.HTTPException, ValueError) as error:
                self.close()
                # Only the type is kept: a reference to the exception would keep the broken
                # connection open.
                failure = type(error).__name__
            may_repeat = tries_left > 0 and self._has_time_left()
            if response is not None and not (may_repeat and self._is_worth_repeating(response)):
                return response
            if not may_repeat:
                break
            time.sleep(self._retry_policy.pause_seconds)
        raise ProviderUnavailable("no response", details=FailureDetails(error=failure))

    def _try(self, method: str, path: str, headers: dict[str, str], body: bytes | None) -> Response:
        """Send a request once, and return the response. Exceptions are not translated."""
        target = self._base_path + path
        received = self._connection.request(method.upper(), target, headers, body)
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

    def _has_time_left(self) -> bool:
        try:
            return self._connection.deadline.remaining() > self._retry_policy.pause_seconds
        except TimeoutError:
            return False


class JsonApi(HttpClient):
    """An HTTP client for an API that uses JSON. It raises the exceptions of the port.

        PAGE = msgspec.json.Decoder(Page)

        with JsonApi("https://api.acme.example/v1", headers={"Authorization": key}) as api:
            page = api.ask(
                PAGE, "POST", "/pages", json={"kind": "card"}, headers={"Idempotency-Key": key}
            )

    The result depends on the response:

    - 2xx that can be decoded: the decoded object is returned.
    - 404 with a JSON object: NotFound is raised, a subclass of ProviderRefused. The PSP may not
      know the object yet.
    - 410 with a JSON object: Gone is raised, a subclass of ProviderRefused. The object was removed.
    - 400 or 422 with a JSON object: ProviderRefused is raised.
    - Any other response with Retry-After in seconds, such as 429: ProviderUnavailable is raised,
      with `retry_after`.
    - Any other response, or no response: ProviderUnavailable is raised. The PSP may have acted on
      the request.

    A 4xx without a JSON object may come from a proxy, so it counts as "any other response".

    `request_id_header` is the name of the header with the id by which the PSP's support can find a
    call. `error_code` is the path of keys that leads to the PSP's code in the body of an error,
    such as ("error", "code"). The id and the code are put into the `details` of the exception if
    they are ASCII words.
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

    def ask(
        self,
        decoder: msgspec.json.Decoder[_Decoded],
        method: str,
        path: str,
        *,
        json: object = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> _Decoded:
        """Send a request as `call` does, and return the decoded response.

        Create each decoder once, at import. `adapters/thread_safe_types.py` explains why.
        """
        response = self.call(method, path, json=json, form=form, headers=headers)
        try:
            return decoder.decode(response.body)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            kind, field = type(error).__name__, field_of(error)
        # The error is raised outside the handler, because the handler's exception would quote the
        # body.
        details = replace(self._details(response, error=kind), param=field)
        raise ProviderUnavailable("the response cannot be decoded", details=details)

    def call(
        self,
        method: str,
        path: str,
        *,
        json: object = None,
        form: Mapping[str, str] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Send a request, and return the response if its status is 2xx.

        The body is `json`, encoded by msgspec, or `form`, encoded like an HTML form. If neither is
        given, the body is empty. Raises ProviderUnavailable or ProviderRefused as the class
        describes.
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
        if failure := self.failure(response):
            raise failure
        return response

    def failure(self, response: Response) -> ProviderUnavailable | ProviderRefused | None:
        """Return the exception that `call` raises for a response, or None for 2xx.

        The class describes the exceptions. Override this method for an API whose errors have status
        200.
        """
        if response.status // 100 == 2:
            return None
        reason, details = f"HTTP {response.status}", self._details(response)
        if _object(response.body) is not None:
            if refusal := _REFUSALS.get(response.status):
                return refusal(reason, details=details)
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


def field_of(error: Exception) -> str | None:
    """Return the path of the field that msgspec refused, such as `details.cardNumber`.

    Return None if the message of `error` does not contain a path.
    """
    found = _FIELD.search(str(error))
    return found and found[1]


def retry_after(headers: Mapping[str, str]) -> timedelta | None:
    """Return the wait that Retry-After requests, or None if it is missing or not in seconds.

    The names in `headers` are in lower case.
    """
    seconds = headers.get("retry-after", "")
    return timedelta(seconds=int(seconds)) if _SECONDS.fullmatch(seconds) else None


# Any: the body of an error may be any JSON.
_OBJECT: Final = msgspec.json.Decoder(dict[str, Any])


def _object(body: bytes) -> dict[str, Any] | None:
    try:
        return _OBJECT.decode(body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


def _word(value: object) -> str | None:
    text = str(value) if isinstance(value, str | int) else ""
    return text if _WORD.fullmatch(text) else None
