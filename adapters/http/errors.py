"""Every error as an answer: the one place where refusals and faults become HTTP.

A refusal's code is the HTTP status and the `code` of the body at the same time. Operations under
`/api/v1` put it into their envelope; everything else, and every refusal of page or size, answers
the bare error object (interface, sections 7.2 and 7.3).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import falcon
import structlog

from adapters.http.answers import ErrorObject, Refused, json_body
from adapters.http.problem_page import show_problem
from domain.errors import (
    PageParameterInvalid,
    Refusal,
    ServiceUnavailable,
    TooManyItems,
    TooManyRequests,
    UserNotAuthenticated,
    UserNotAuthorized,
)
from domain.ports import WebhookRejected

log = structlog.get_logger()


class InvalidRequestBody(Refusal):
    """The body is no JSON object, holds NaN or a key twice, or is nested too deep."""

    code = 400
    message = "Invalid request body"


class InvalidWebhook(Refusal):
    """The webhook cannot be trusted, or is not meant for us."""

    code = 400
    message = "Invalid webhook"


class NotFound(Refusal):
    """Nothing is served under this path."""

    code = 404
    message = "Not found"


class MethodNotAllowed(Refusal):
    """The path is served, but not with this method."""

    code = 405
    message = "Method not allowed"


class RequestBodyTooLarge(Refusal):
    """The body of an API request has more than 16 KiB, of a webhook more than 256 KiB."""

    code = 413
    message = "Request body too large"


class UnsupportedMediaType(Refusal):
    """The body is not sent as `application/json` in UTF-8."""

    code = 415
    message = "Unsupported media type"


class InternalError(Refusal):
    """A fault of ours; the log has more."""

    code = 500
    message = "Internal error"


class InvalidRequest(Refusal):
    """The request is no proper HTTP."""

    code = 400
    message = "Invalid request"


_FOR_GUESTS: Final[Mapping[int, tuple[str, str]]] = {
    500: (
        "Something went wrong",
        "The fault is ours, and nothing was charged. Please go back to where you started.",
    ),
    503: (
        "The payment page cannot be reached",
        "Nothing was charged. Please wait a moment, then load this page again.",
    ),
}
_OTHERWISE_FOR_GUESTS: Final = (
    "This page cannot be shown",
    "Please go back to where you started, and try again from there.",
)


class ErrorAnswers:
    """Falcon's error handlers."""

    _OF_FALCON: ClassVar[Mapping[int, type[Refusal]]] = {
        404: NotFound,
        405: MethodNotAllowed,
        413: RequestBodyTooLarge,
        415: UnsupportedMediaType,
    }

    def add_to(self, app: falcon.App[falcon.Request, falcon.Response]) -> None:
        """Have the app answer every error that its resources raise."""
        app.add_error_handler(Exception, self.on_fault)
        app.add_error_handler(falcon.HTTPError, self.on_http_error)
        app.add_error_handler(WebhookRejected, self.on_webhook_rejected)
        app.add_error_handler(Refusal, self.on_refusal)

    def on_refusal(
        self, req: falcon.Request, resp: falcon.Response, refusal: Refusal, _: object
    ) -> None:
        """Answer a refusal."""
        if isinstance(refusal, UserNotAuthenticated):
            resp.set_header("WWW-Authenticate", "Bearer")
        if isinstance(refusal, TooManyRequests):
            resp.set_header("Retry-After", str(refusal.retry_after_seconds))
        if isinstance(refusal, UserNotAuthorized):
            log.warning(
                "permission_refused",
                method=req.method,
                route=req.uri_template,
                caller=req.context.get("caller"),
            )
        if isinstance(refusal, ServiceUnavailable):
            cause = refusal.__cause__
            log.error("service_unavailable", cause=str(cause) if cause else "no turn to write")
        self._answer(req, resp, refusal)

    def on_webhook_rejected(
        self, req: falcon.Request, resp: falcon.Response, rejected: WebhookRejected, _: object
    ) -> None:
        """Answer 400, and keep the reason for the operator."""
        log.warning("webhook_rejected", route=req.uri_template, reason=str(rejected))
        self._answer(req, resp, InvalidWebhook())

    def on_http_error(
        self, req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, _: object
    ) -> None:
        """Answer what Falcon itself refuses: unknown paths and methods above all."""
        for name, value in dict(error.headers or {}).items():
            resp.set_header(name, value)
        kind = self._OF_FALCON.get(error.status_code)
        if kind is None:
            kind = InvalidRequest if error.status_code < 500 else InternalError
        self._answer(req, resp, kind())

    def on_fault(
        self, req: falcon.Request, resp: falcon.Response, fault: Exception, _: object
    ) -> None:
        """Answer a fault of ours, and log its kind and place."""
        log.error("internal_error", method=req.method, route=req.uri_template, exc_info=fault)
        self._answer(req, resp, InternalError())

    def _answer(self, req: falcon.Request, resp: falcon.Response, refusal: Refusal) -> None:
        if req.path.startswith("/hosted-payments/") or req.path == "/hosted-payments":
            title, advice = _FOR_GUESTS.get(refusal.code, _OTHERWISE_FOR_GUESTS)
            show_problem(resp, status=refusal.code, title=title, advice=advice)
            if isinstance(refusal, ServiceUnavailable):
                resp.set_header("Retry-After", "30")
            return
        resp.status = refusal.code
        json_body(resp, error_body(req.path, refusal))


def error_body(path: str, refusal: Refusal) -> Refused | ErrorObject:
    """Give the body that a refusal has under a path: in the envelope, or bare."""
    error = ErrorObject(code=refusal.code, message=refusal.message)
    is_about_paging = isinstance(refusal, TooManyItems | PageParameterInvalid)
    if f"{path}/".startswith("/api/v1/") and not is_about_paging:
        return Refused(error=error)
    return error
