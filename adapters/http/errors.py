"""Turn refusals and faults into HTTP responses. This is the only module that does so.

Refusals about HTTP itself, such as an unknown path or a malformed body, are defined here too.

The code of a refusal is both the HTTP status and the `code` in the body. The header `Error-Type`
contains the type of the refusal. A type may have several messages. Under `/api/v1`, the error
object is wrapped in an envelope, except for a refusal of `page` or `size`. Under other paths, it is
never wrapped. Guests' browsers get an HTML page.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

import falcon
import structlog

from adapters.http.authentication import sent_token
from adapters.http.problem_page import UNREACHABLE, Problem, show_problem
from adapters.http.responses import ErrorObject, Refused, json_body
from domain.errors import (
    CardLimitReached,
    PageParameterInvalid,
    Refusal,
    ServiceUnavailable,
    TooManyItems,
    TooManyRequests,
    UserNotAuthenticated,
    UserNotAuthorized,
)

ERROR_TYPE: Final = "Error-Type"
"""The header with the type of every refusal in JSON, for programs to compare."""

log = structlog.get_logger()


class InvalidRequest(Refusal):
    """The request is malformed in a way that no other refusal describes."""

    code = 400
    type = "invalid_request"
    message = "Invalid request"


class UnknownQueryParameter(Refusal):
    """The operation does not accept this query parameter.

    It is not ignored, because it may be a misspelled filter. Without the filter, a list would
    contain records that the client did not ask for.
    """

    code = 400
    type = "unknown_query_parameter"

    def __init__(self, name: str) -> None:
        # The name is repeated only if it is a word, because a client may put anything into a query.
        named = f": {name}" if re.fullmatch("[A-Za-z_]{1,40}", name) else ""
        self.message = f"Unknown query parameter{named}"
        super().__init__()


class InvalidRequestBody(Refusal):
    """The body is not a JSON object, contains NaN or a repeated key, or is nested too deep."""

    code = 400
    type = "invalid_request_body"
    message = "Invalid request body"


class InvalidWebhook(Refusal):
    """The webhook cannot be verified, or is not meant for this service."""

    code = 400
    type = "invalid_webhook"
    message = "Invalid webhook"


class NotFound(Refusal):
    """No resource has this path, or no such PSP is set up."""

    code = 404
    type = "not_found"
    message = "Not found"


class MethodNotAllowed(Refusal):
    """The resource does not support this method."""

    code = 405
    type = "method_not_allowed"
    message = "Method not allowed"


class RequestBodyTooLarge(Refusal):
    """The body has more than 16 KiB, or 256 KiB for a webhook."""

    code = 413
    type = "request_body_too_large"
    message = "Request body too large"


class UnsupportedMediaType(Refusal):
    """The body is not sent as `application/json` in UTF-8, or is compressed."""

    code = 415
    type = "unsupported_media_type"
    message = "Unsupported media type"


class InternalError(Refusal):
    """A fault of the service. The log contains the details."""

    code = 500
    type = "internal_error"
    message = "Internal error"


_BY_STATUS: Final[Mapping[int, type[Refusal]]] = {
    404: NotFound,
    405: MethodNotAllowed,
    413: RequestBodyTooLarge,
    415: UnsupportedMediaType,
}

_PROBLEMS: Final[Mapping[type[Refusal], Problem]] = {
    ServiceUnavailable: UNREACHABLE,
    NotFound: Problem(status=404, key="problem.nothing_here"),
    InternalError: Problem(status=500, key="problem.fault"),
    TooManyRequests: Problem(status=429, key="problem.too_many"),
}
"""The problems that are shown to guests for these refusals. Other refusals share one text."""


def add_error_handlers(app: falcon.App[falcon.Request, falcon.Response]) -> None:
    """Add handlers that turn every exception of a resource into a response."""
    app.add_error_handler(Exception, _on_fault)
    app.add_error_handler(falcon.HTTPError, _on_http_error)
    app.add_error_handler(Refusal, _refuse)
    app.add_error_handler(UserNotAuthenticated, _ask_for_token)
    app.add_error_handler(UserNotAuthorized, _log_lack_of_permission)
    app.add_error_handler(TooManyRequests, _refuse_with_retry_after)
    app.add_error_handler(CardLimitReached, _log_card_limit)
    app.add_error_handler(ServiceUnavailable, _log_outage)


def error_body(path: str, refusal: Refusal) -> Refused | ErrorObject:
    """Return the body of a refusal, with or without the envelope, depending on the path."""
    error = ErrorObject(code=refusal.code, message=refusal.message)
    is_about_paging = isinstance(refusal, TooManyItems | PageParameterInvalid)
    if f"{path}/".startswith("/api/v1/") and not is_about_paging:
        return Refused(error=error)
    return error


def _refuse(req: falcon.Request, resp: falcon.Response, refusal: Refusal, _: object = None) -> None:
    is_nowhere = isinstance(refusal, NotFound)
    if is_nowhere:
        resp.append_header("Vary", "Accept")
    if f"{req.path}/".startswith(("/hosted-payments/", "/h/")) or (
        is_nowhere and "text/html" in req.accept
    ):
        show_problem(req, resp, _PROBLEMS.get(type(refusal)) or _problem(refusal))
    else:
        resp.status = refusal.code
        resp.set_header(ERROR_TYPE, refusal.type)
        json_body(resp, error_body(req.path, refusal))


def _ask_for_token(
    req: falcon.Request, resp: falcon.Response, refusal: UserNotAuthenticated, _: object
) -> None:
    # RFC 6750, 3.1: if the request has no token, the header contains nothing else.
    refused = 'Bearer error="invalid_token"'
    resp.set_header("WWW-Authenticate", refused if sent_token(req) else "Bearer")
    _refuse(req, resp, refusal)


def _log_lack_of_permission(
    req: falcon.Request, resp: falcon.Response, refusal: UserNotAuthorized, _: object
) -> None:
    log.warning(
        "permission_refused",
        method=req.method,
        route=req.uri_template,
        caller=req.context.get("caller"),
    )
    _refuse(req, resp, refusal)


def _refuse_with_retry_after(
    req: falcon.Request, resp: falcon.Response, refusal: TooManyRequests, _: object
) -> None:
    resp.set_header("Retry-After", str(refusal.retry_after_seconds))
    _refuse(req, resp, refusal)


def _log_card_limit(
    req: falcon.Request, resp: falcon.Response, refusal: CardLimitReached, _: object
) -> None:
    log_card_limit(refusal, caller=req.context.get("caller"))
    _refuse_with_retry_after(req, resp, refusal, _)


def _log_outage(
    req: falcon.Request, resp: falcon.Response, refusal: ServiceUnavailable, _: object
) -> None:
    # Only the first line is logged, because hints and parts of the statement may follow.
    cause = str(refusal.__cause__ or "no connection or write lock in time").partition("\n")[0]
    log.error("service_unavailable", cause=cause)
    _refuse(req, resp, refusal)


def log_card_limit(reached: CardLimitReached, *, caller: str | None) -> None:
    """Log that a limit against card testing was reached, so that a request was refused.

    The request was either add-card, or a guest's request to open a link. `caller` is None for a
    link.
    """
    log.warning("card_limit_reached", limit=reached.counted, of=reached.of, caller=caller)


def _on_http_error(
    req: falcon.Request, resp: falcon.Response, error: falcon.HTTPError, _: object
) -> None:
    # Falcon raises these itself, above all for unknown paths and methods.
    for name, value in dict(error.headers or {}).items():
        resp.set_header(name, value)
    otherwise = InvalidRequest if error.status_code < 500 else InternalError
    _refuse(req, resp, _BY_STATUS.get(error.status_code, otherwise)())


def _on_fault(req: falcon.Request, resp: falcon.Response, fault: Exception, _: object) -> None:
    log.error("internal_error", method=req.method, route=req.uri_template, exc_info=fault)
    _refuse(req, resp, InternalError())


def _problem(refusal: Refusal) -> Problem:
    return Problem(status=refusal.code, key="problem.refused")
