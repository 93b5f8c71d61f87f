"""Falcon middleware for every request: short paths, the security headers, the access log."""

from __future__ import annotations

import time
from dataclasses import dataclass

import falcon
import structlog

log = structlog.get_logger()


class Paths:
    """Serves `/v1/guests/…` like `/api/v1/guests/…`, as clients of similar services send it."""

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Rewrite the path before routing. Raises HTTPNotFound for a trailing slash."""
        if req.path.startswith("/v1/guests/"):
            req.path = f"/api{req.path}"
        # Falcon would take it for an empty id.
        if req.path.endswith("/") and req.path.startswith(("/v1/", "/api/")):
            raise falcon.HTTPNotFound


@dataclass(frozen=True, kw_only=True)
class SecurityHeaders:
    """Sets the security headers of every response; HSTS only where the service is on https."""

    is_https: bool

    def process_response(
        self, _: falcon.Request, resp: falcon.Response, __: object, ___: bool
    ) -> None:
        """Set the headers that prevent caching, MIME sniffing and plain http."""
        if not resp.get_header("Cache-Control"):
            resp.set_header("Cache-Control", "no-store")
        resp.set_header("X-Content-Type-Options", "nosniff")
        if self.is_https:
            resp.set_header("Strict-Transport-Security", "max-age=31536000")


class AccessLog:
    """Logs one line per request, without its query, body or token."""

    def process_request(self, req: falcon.Request, _: falcon.Response) -> None:
        """Note the time at which the request arrived."""
        req.context.started_at = time.perf_counter()

    def process_response(
        self, req: falcon.Request, resp: falcon.Response, _: object, __: bool
    ) -> None:
        """Log the request by its route: the path contains guests and session tokens."""
        elapsed_seconds = time.perf_counter() - req.context.started_at
        log.info(
            "request",
            # A client may send text of any length as the method.
            method=req.method if req.method in falcon.HTTP_METHODS else "other",
            route=req.uri_template,
            status=resp.status_code,
            caller=req.context.get("caller"),
            milliseconds=round(elapsed_seconds * 1000, 1),
        )
