"""Falcon middleware for every request: request ids, short paths, security headers, access log."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Final, TypeAlias

import falcon
import structlog
from structlog.contextvars import bind_contextvars, clear_contextvars

from adapters.http.client_networks import logged_network
from adapters.http.errors import ERROR_TYPE
from adapters.traces import TRACEPARENT, begin, logged, trace_of
from domain.access.token import MARK
from domain.card_numbers import holds_card_number
from domain.identifiers import plain_uuid
from domain.outside import Ids

GUEST_SEARCH: Final = "/v1/guests/search"

REQUEST_ID: Final = "X-Request-ID"
"""The header with the id of a request, which a client may choose."""
REQUEST_ID_PATTERN: Final = "[A-Za-z0-9._-]{1,128}"

SECURITY_HEADERS: Final = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; frame-ancestors 'none'",
    "Referrer-Policy": "same-origin",
    "X-Content-Type-Options": "nosniff",
}
"""The default security headers. A response, such as an HTML page, may set other values."""

log = structlog.get_logger()


@dataclass(frozen=True, kw_only=True)
class RequestIds:
    """Gives each request an id: the id that the client sent if it is well-formed, or a new id.

    The response and every log line about the request contain the id. The lines also contain the id
    of the request's trace, if there is one. This must be the first middleware, so that the lines of
    the other middleware contain the id too.
    """

    ids: Ids

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Bind the request's id to the log lines of the thread."""
        sent = req.get_header(REQUEST_ID, default="")
        req.context.request_id = sent if _may_be_logged(sent) else self.ids.uuid()
        req.context.trace = trace_of(req.get_header(TRACEPARENT, default=""))
        bind_contextvars(request_id=req.context.request_id, **logged(req.context.trace))

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, _: object, __: bool
    ) -> None:
        """Add the request's id to the response's headers.

        Unbind the id and the trace from the log lines of the thread.
        """
        resp.set_header(REQUEST_ID, req.context.request_id)
        clear_contextvars()
        begin(None)


def _may_be_logged(request_id: str) -> bool:
    """Return whether a client's id is well-formed and contains neither a card number nor a token."""
    if not re.fullmatch(REQUEST_ID_PATTERN, request_id):
        return False
    # Some UUIDs have twelve digits in a row.
    is_uuid = plain_uuid(request_id) is not None
    return is_uuid or not (MARK in request_id or holds_card_number(request_id))


class Paths:
    """Serves `/v1/guests/…` like `/api/v1/guests/…`.

    Clients of similar services use the shorter path. The path of the search for guests is not
    changed.
    """

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Rewrite the path before routing. Raises HTTPNotFound for a trailing slash."""
        if req.path.startswith("/v1/guests/") and req.path != GUEST_SEARCH:
            req.path = f"/api{req.path}"
        # Falcon would treat this as an empty id.
        if req.path.endswith("/") and req.path.startswith(("/v1/", "/api/")):
            raise falcon.HTTPNotFound


@dataclass(frozen=True, kw_only=True)
class SecurityHeaders:
    """Sets the security headers of every response.

    `hsts` is the value of Strict-Transport-Security, or None if the public address is not https.
    """

    hsts: str | None

    def process_response(
        self, _: falcon.Request, resp: falcon.Response, __: object, ___: bool
    ) -> None:
        """Set the headers that the response lacks.

        They forbid framing, caching, content sniffing, and loading other resources.
        """
        for name, value in SECURITY_HEADERS.items():
            if not resp.get_header(name):
                resp.set_header(name, value)
        if self.hsts is not None:
            resp.set_header("Strict-Transport-Security", self.hsts)


Observe: TypeAlias = Callable[[str, str, int, float], None]


class AccessLog:
    """Logs one line for each request, except for requests to `unlogged` routes.

    A line never contains a query, a body or a token. For a refused request, it contains the type of
    the error and the ids in the path (`req.context.asked_for`). `observe` is called for every
    request with its route, method, status and duration in seconds. It must not raise an exception.
    """

    def __init__(self, unlogged: Collection[str], observe: Observe | None = None) -> None:
        self._unlogged = unlogged
        self._observe = observe

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Store the time at which the request arrived."""
        req.context.started_at = time.perf_counter()

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, _: object, __: bool
    ) -> None:
        """Log the request.

        The line contains the route instead of the path, because a path contains ids of guests and
        tokens.
        """
        elapsed_seconds = time.perf_counter() - req.context.started_at
        # A client may send text of any length as the method.
        method = req.method if req.method in falcon.HTTP_METHODS else "other"
        if self._observe:
            self._observe(req.uri_template or "none", method, resp.status_code, elapsed_seconds)
        if req.uri_template in self._unlogged:
            return
        error = resp.get_header(ERROR_TYPE)
        refused = {"error": error, **(req.context.get("asked_for") or {})} if error else {}
        log.info(
            "request",
            method=method,
            route=req.uri_template,
            status=resp.status_code,
            caller=req.context.get("caller"),
            network=logged_network(req.remote_addr),
            milliseconds=round(elapsed_seconds * 1000, 1),
            **refused,
        )
